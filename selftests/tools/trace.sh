#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# The tracepoints of the C module, with its names and fields: bytes sent and received, a fallback,
# and a link that goes down; and our own of a promotion. In namespaces `a` and `b` with an rxe device each.
. "$RSMC_SELFTESTS/lib.sh"
tracing=/sys/kernel/tracing
[ -e "$tracing/trace" ] || mount -t tracefs tracefs "$tracing" || exit 1
cd "$TMPDIR" || exit 1
cat > talk.py <<'E2'
import socket, sys
SMC = 256
def enter(name):
    import ctypes, os
    fd = os.open("/run/netns/" + name, os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(fd, 0x40000000):
        raise OSError(ctypes.get_errno(), "setns")
server, port = int(sys.argv[1]), int(sys.argv[2])
enter("b")
listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, server)
listener.bind(("10.77.0.2", port))
listener.listen()
enter("a")
client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, SMC)
client.connect(("10.77.0.2", port))
accepted, _ = listener.accept()
client.sendall(b"twelve bytes")
assert accepted.recv(100) == b"twelve bytes"
print("talked", flush=True)
sys.stdin.read()
E2
# told PATTERN: a line of the trace fits.
told() {
	grep -Eq "$1" "$tracing/trace" && return
	echo "# no line fits: $1"
	grep smc "$tracing/trace" | head -n 20 | sed 's/^/# /'
	return 1
}
echo > "$tracing/trace"
echo 1 > "$tracing/events/smc/enable" || exit 1
ktap_plan 7
python3 talk.py 0 7200 < /dev/null
check "a fallback" told 'smc_switch_to_fallback: sk=[0-9a-f]+ clcsk=[0-9a-f]+ net=[0-9]+ fallback_rsn=[1-9]'
mkfifo hold
python3 talk.py 256 7201 < hold > said &
pid=$!
exec 3> hold
wait_for 20 grep -q talked said
check "bytes sent" told 'smc_tx_sendmsg: smc=[0-9a-f]+ net=[0-9]+ len=12 dev=rxe_a'
check "bytes received" told 'smc_rx_recvmsg: smc=[0-9a-f]+ net=[0-9]+ len=12 dev=rxe_b'
cat > promote.py <<'E2'
import socket, struct, time
exec(open("talk.py").read().split("server, port")[0])
enter("b")
listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, SMC)
listener.bind(("10.77.0.2", 7203))
listener.listen()
enter("a")
client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, SMC)
client.connect(("10.77.0.2", 7203))
accepted, _ = listener.accept()
mode = lambda: struct.unpack("4I", client.getsockopt(286, 100, 16))[0]
end = time.monotonic() + 60
while mode() != 0 and time.monotonic() < end:
    for one, other in (client, accepted), (accepted, client):
        one.sendall(b"twelve bytes")
        assert other.recv(100) == b"twelve bytes"
    time.sleep(0.005)
E2
setting() {
	for namespace in a b; do
		ip netns exec "$namespace" sysctl -qw "$@"
	done
}
setting net.smc.path=2 net.smc.path_promote=4 net.smc.path_software=1
python3 promote.py
setting net.smc.path=1
check "a promotion begins" told 'smc_promotion: sk=[0-9a-f]+ net=[0-9]+ server=1 step=joining reason=0'
check "a promotion is done" told 'smc_promotion: sk=[0-9a-f]+ net=[0-9]+ server=0 step=smc reason=0'
ip netns exec a rdma link delete rxe_a || exit 1
exec 3>&-
wait $pid
check "the link goes down" told 'smcr_link_down: lnk=[0-9a-f]+ lgr=[0-9a-f]+ net=[0-9]+ state=3 dev=rxe_a location='
ip netns exec a rdma link add rxe_a type rxe netdev va || exit 1
echo 0 > "$tracing/events/smc/enable"
echo > "$tracing/trace"
python3 talk.py 0 7202 < /dev/null
check "nothing when off" sh -c "! grep -q smc_ $tracing/trace"
ktap_exit
