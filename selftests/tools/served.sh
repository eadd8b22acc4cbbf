# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# For cli.sh and looks.sh, after lib.sh: in namespace `b` a plain TCP server (port 7001), an SMC one (7002) and one
# over IPv6 by AF_SMC (7003); by `client` one in `a` that is connected to each. $in_tree is set with the C module.
#
#   field EXPRESSION        of the JSON on standard input, called `it`
#   status COMMAND...       its exit code
#   background COMMAND...   started, and ended with the test
in_tree=
grep -q '^smc ' /proc/modules && in_tree=1
cd "$TMPDIR" || exit 1

cat > serve.py <<'E'
import socket, sys
host, port, kind = sys.argv[1], int(sys.argv[2]), socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
listener = socket.socket(kind)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind((host, port))
listener.listen()
held = []
while True:
    connection, _ = listener.accept()
    try:
        connection.sendall(b"x")
        held.append(connection)
    except OSError:
        pass # A client that went at once; strict ones and tests do.
E
cat > connect.py <<'E'
import socket, sys, time
held = []
for host, port in zip(sys.argv[1::2], sys.argv[2::2]):
    connection = socket.create_connection((host, int(port)))
    assert connection.recv(1) == b"x"
    held.append(connection)
print("connected", flush=True)
time.sleep(600)
E
# One Python for all expressions: on an emulated processor starting one for each is half of a test's time.
cat > fields.py <<'E'
import json, sys
for expression in sys.stdin:
    try:
        it = json.loads("".join(iter(sys.stdin.readline, ".\n")))
        answer = eval(expression, {"it": it})
    except Exception as error:
        answer = f"{type(error).__name__}: {error}"
    print(answer, flush=True)
E
field() {
	{ printf '%s\n' "$1"; cat; printf '\n.\n'; } >&8
	IFS= read -r field_answer <&9
	printf '%s\n' "$field_answer"
}

# status COMMAND...: its exit code
status() {
	"$@" >/dev/null 2>&1
	echo $?
}

children=
background() {
	"$@" &
	children="$children $!"
}
trap 'kill $children 2>/dev/null' EXIT

mkfifo asked answered
python3 -I -S fields.py < asked > answered & # not `background`: that has no input
children=$!
exec 8> asked 9< answered

background ip netns exec b python3 serve.py "$RSMC_PEER_ADDR" 7001
background ip netns exec b rsmc run --debug -- python3 serve.py "$RSMC_PEER_ADDR" 7002 2> server.log
background ip netns exec b rsmc run --family smc -- python3 serve.py "$RSMC_PEER_ADDR6" 7003

listeners() { [ "$(ns b rsmc ss -l --json | field 'len(it)')" = 2 ]; }
tcp_listens() { ns b ss -ltn | grep -q ':7001 '; }
client() {
	background ip netns exec a rsmc run --debug -- python3 connect.py "$RSMC_PEER_ADDR" 7001 "$RSMC_PEER_ADDR" 7002 \
		"$RSMC_PEER_ADDR6" 7003 > client.log 2> client.debug
}
is_connected() { grep -q connected client.log; }
