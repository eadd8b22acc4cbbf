#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# `rsmc link` and `rsmc dev` while connections are up, in both guests of a pair; with either module.
. "$RSMC_SELFTESTS/lib.sh"
in_tree=
grep -q '^smc ' /proc/modules && in_tree=1
cd "$TMPDIR" || exit 1
# field EXPRESSION: of the JSON on standard input, called `it`
field() {
	python3 -c "import json, sys; it = json.load(sys.stdin); print(($1))"
}
# Connections that both ends hold until they are told.
cat > held.py <<'E'
import socket, sys
address, role, count = sys.argv[1], sys.argv[2], 3
held = []
if role == "server":
    listener = socket.create_server((address, 7100))
    print("listening", flush=True)
    for _ in range(count):
        connection, _ = listener.accept()
        connection.sendall(b"x")
        held.append(connection)
else:
    for _ in range(count):
        connection = socket.create_connection((address, 7100))
        assert connection.recv(1) == b"x"
        held.append(connection)
print("connected", flush=True)
sys.stdin.read()
E
server=$RSMC_PEER_ADDR
[ "$RSMC_ROLE" = client ] || server=$RSMC_ADDR

ktap_plan 9
[ -z "$in_tree" ] || rsmc ueid add RSMC-DEFAULT
is no_group_yet "$(rsmc link --json)" "[]"
mkfifo hold
if [ "$RSMC_ROLE" = server ]; then
	rsmc run --family smc -- python3 held.py "$server" server <hold >log 2>&1 &
	exec 9>hold
	wait_for 10 grep -q listening log
	barrier listening
else
	barrier listening
	rsmc run --family smc -- python3 held.py "$server" client <hold >log 2>&1 &
	exec 9>hold
fi
check connected wait_for 20 grep -q connected log
barrier connected
rsmc link | sed 's/^/# /'
rsmc link --json >links
is one_group "$(field 'len(it), it[0]["role"], it[0]["connections"]' <links)" "(1, '$RSMC_ROLE', 3)"
is version "$(field 'it[0]["version"], it[0]["release"], it[0]["eid"]' <links)" "(2, 1, 'RSMC-DEFAULT')"
is link "$(field '[(l["device"], l["port"], l["state"], l["connections"]) for l in it[0]["links"]]' <links)" \
	"[('rxe0', 1, 'active', 3)]"
is addresses "$(rsmc link | awk 'NR == 2 { print $5, $6 }')" "$RSMC_ADDR $RSMC_PEER_ADDR"
is memory "$(field 'it[0]["send_bytes"] >= 3 * 16384 and it[0]["receive_bytes"] >= 3 * 16384' <links)" True
is peer_host "$(field 'bool(it[0]["peer_host"])' <links)" True
rsmc dev | sed 's/^/# /'
is device "$(rsmc dev --json | field '[(p["device"], p["port"], p["active"], p["links"], p["ifindex"]) for p in it]')" \
	"[('rxe0', 1, True, 1, $(cat "/sys/class/net/$RSMC_DEV/ifindex"))]"
barrier done
exec 9>&-
wait
ktap_exit
