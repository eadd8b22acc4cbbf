#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Which RDMA port serves a connection, and how many a group takes: the port beside the connection's
# interface, one that the administrator has put on the same network, and one whose peer is behind a
# router. Everything is in strict mode: what would fall back fails.
. "$RSMC_SELFTESTS/lib.sh"
cd "$TMPDIR" || exit 1

# talk.py serve ADDRESS COUNT | talk.py call ADDRESS COUNT: connections that echo, all open at once.
# `call` waits for its standard input to end before it closes them.
cat > talk.py <<'P'
import socket, sys
role, address, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
data = bytes(range(251)) * 400
def exactly(s, n):
    got = b""
    while len(got) < n:
        part = s.recv(n - len(got))
        assert part, "end"
        got += part
    return got
held = []
if role == "serve":
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, 7200))
    listener.listen(64)
    print("listening", flush=True)
    for _ in range(count):
        s, _ = listener.accept()
        s.sendall(exactly(s, len(data)))
        held.append(s)
    for s in held:
        s.recv(1)
else:
    for _ in range(count):
        s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
        s.settimeout(20)
        s.connect((address, 7200))
        s.sendall(data)
        assert exactly(s, len(data)) == data, "wrong bytes"
        held.append(s)
    print("connected", flush=True)
    sys.stdin.read()
P

# talks ADDRESS COUNT: that many connections from a to b; `rsmc link` of a meanwhile is in the file links.
talks() {
	: > serving; : > calling
	ip netns exec b timeout "$(slow 40)" python3 -I -S talk.py serve "$1" "$2" > serving 2>&1 &
	serving=$!
	wait_for 10 grep -q listening serving || cat serving
	rm -f hold; mkfifo hold
	ip netns exec a timeout "$(slow 40)" python3 -I -S talk.py call "$1" "$2" < hold > calling 2>&1 &
	calling=$!
	exec 5> hold
	wait_for 20 grep -q connected calling || kill "$calling" 2>/dev/null
	ip netns exec a rsmc link --json > links
	exec 5>&-
	wait "$calling"
	status=$?
	[ "$status" = 0 ] || kill "$serving" 2>/dev/null
	wait "$serving"
	[ "$status" = 0 ] || sed 's/^/# /' calling serving
	return "$status"
}

# refused ADDRESS: a connection is refused with what strict mode says.
refused() {
	: > serving
	ip netns exec b timeout "$(slow 20)" python3 -I -S talk.py serve "$1" 1 > serving 2>&1 &
	serving=$!
	wait_for 10 grep -q listening serving
	ip netns exec a timeout "$(slow 20)" python3 -I -S talk.py call "$1" 1 < /dev/null > calling 2>&1
	kill "$serving" 2>/dev/null
	wait "$serving" 2>/dev/null
	grep "Protocol not supported" calling > said || cat calling
	test -s said
}

# field EXPRESSION: for the links of a's groups that are in use, called `g` and `l`.
field() {
	python3 -I -S -c "import json
groups = [g for g in json.load(open('links')) if g['role'] == 'client' and g['connections']]
print(sorted($1 for g in groups for l in g['links']))"
}

for space in a b; do
	ip netns exec $space sysctl -qw net.smc.strict=1
done
ktap_plan 11

talks 10.77.0.2 1
is beside $? 0
is beside.port "$(field '(l["device"], l["port"])')" "[('rxe_a', 1)]"

# Interfaces without an RDMA device, until somebody says that there is one on the same network.
ip link add wa netns a type veth peer name wb netns b
ip -n a addr add 10.78.0.1/24 dev wa
ip -n b addr add 10.78.0.2/24 dev wb
ip -n a link set wa up
ip -n b link set wb up
check no_port refused 10.78.0.2
for space in a b; do
	ip netns exec $space rsmc pnet add net1 -I w$space || echo "# pnet add -I failed"
	# RDMA ports are the machine's.
	rsmc pnet add net1 -D rxe_$space || echo "# pnet add -D failed"
done
talks 10.78.0.2 1
is same_network $? 0
is same_network.port "$(field '(l["device"], l["port"])')" "[('rxe_a', 1)]"
ip netns exec a rsmc pnet del net1
check no_port_again refused 10.78.0.2
ip netns exec b rsmc pnet del net1
rsmc pnet del net1

# Behind a router.
ip netns add r
for space in a b; do
	[ $space = a ] && net=1 || net=2
	ip link add x$space netns $space type veth peer name r$space netns r
	ip -n $space addr add 10.79.$net.1/24 dev x$space
	ip -n r addr add 10.79.$net.254/24 dev r$space
	ip -n $space link set x$space up
	ip -n r link set r$space up
	ip -n $space route add 10.79.0.0/16 via 10.79.$net.254
	ip netns exec $space rdma link add rxe_x$space type rxe netdev x$space
done
ip netns exec r sysctl -qw net.ipv4.ip_forward=1
# A group takes this number of connections; the next one begins another group.
for space in a b; do
	ip netns exec $space sysctl -qw net.smc.smcr_max_conns_per_lgr=16
done
forwarded() {
	ip netns exec r awk '/^Ip: [0-9]/ { print $7 }' /proc/net/snmp
}
talks 10.79.2.1 1
is routed $? 0
is routed.port "$(field '(l["device"], g["direct"], l["gid"])')" "[('rxe_xa', False, '0000:0000:0000:0000:0000:ffff:0a4f:0101')]"
before=$(forwarded)
talks 10.79.2.1 20
is many $? 0
is many.groups "$(field '(l["device"], g["connections"])')" "[('rxe_xa', 4), ('rxe_xa', 16)]"
# 20 times 100,400 bytes each way, in packets of at most 4096.
packets=$(($(forwarded) - before))
check "routed.by_router" [ "$packets" -ge 980 ]
echo "# $packets packets by the router"

for space in a b; do
	ip netns exec $space rdma link delete rxe_x$space
done
ip netns del r
ktap_exit
