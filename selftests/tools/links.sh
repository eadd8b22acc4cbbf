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
# What sock_diag tells of SMC connections, by the kernel's header alone (linux/smc_diag.h).
cat > diag.py <<'E'
import socket, struct
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4)
request = struct.pack("=BHB48x", 43, 0, 1 << 0 | 1 << 1)
s.send(struct.pack("=IHHII", 16 + len(request), 20, 0x301, 1, 0) + request)
s.settimeout(10)
told = []
done = False
while not done:
    data = s.recv(1 << 17)
    while len(data) >= 16:
        length, kind = struct.unpack_from("=IH", data)
        done |= kind in (2, 3)
        body = data[16:length]
        if kind == 20 and body[2] == 0 and len(body) > 64:
            attributes, found = body[64:], {}
            while len(attributes) >= 4:
                size, number = struct.unpack_from("=HH", attributes)
                found[number] = attributes[4:size]
                attributes = attributes[(size + 3) & ~3:]
            if 1 in found and 2 in found:
                c = struct.unpack("=4I" + "2xHI" * 4 + "4B" + "2xHI" * 3, found[1])
                group = found[2]
                text = lambda a, b: group[a:b].split(b"\0")[0].decode()
                told.append((c[0] != 0, c[1:4], "rx_prod", c[5], "tx_prod", c[9], "sent", c[19],
                    text(1, 65), group[65], text(66, 106), text(106, 146), group[146]))
        data = data[(length + 3) & ~3:]
for line in sorted(told):
    print(*line)
E
# gid ADDRESS: an IPv4 address in the notation of verbs
gid() {
	echo "$1" | awk -F. '{ printf "0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x\n", $1, $2, $3, $4 }'
}
server=$RSMC_PEER_ADDR
[ "$RSMC_ROLE" = client ] || server=$RSMC_ADDR

ktap_plan 14
[ -z "$in_tree" ] || rsmc ueid add RSMC-DEFAULT
is no_group_yet "$(rsmc link --json)" "[]"
# The counters may be those of tests before.
rsmc stats reset
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
# Only the server sends, and ours has a send ring only then.
[ "$RSMC_ROLE" = client ] && [ -z "$in_tree" ] && sends="== 0" || sends=">= 3 * 16384"
is memory "$(field "it[0]['send_bytes'] $sends and it[0]['receive_bytes'] >= 3 * 16384" <links)" True
is peer_host "$(field 'bool(it[0]["peer_host"])' <links)" True
# Each connection has carried one byte, from the server.
[ "$RSMC_ROLE" = server ] && bytes="0 tx_prod 1 sent 1" role=1 || bytes="1 tx_prod 0 sent 0" role=0
one="True (65536, 65536, 65536) rx_prod $bytes rxe0 1 $(gid "$RSMC_ADDR") $(gid "$RSMC_PEER_ADDR") $role"
is sock_diag "$(python3 diag.py)" "$(printf '%s\n%s\n%s' "$one" "$one" "$one")"
rsmc ss -e | sed 's/^/# /'
rsmc ss --json --mode smcr >sockets
[ "$RSMC_ROLE" = server ] && bytes="(0, 1)" || bytes="(1, 0)"
is bytes "$(field '{(s["bytes"]["received"], s["bytes"]["sent"]) for s in it}' <sockets)" "{$bytes}"
is socket_link "$(field '{(s["link"]["device"], s["link"]["role"], s["buffers"]["receive"]) for s in it}' <sockets)" \
	"{('rxe0', '$RSMC_ROLE', 65536)}"
rsmc dev | sed 's/^/# /'
is device "$(rsmc dev --json | field '[(p["device"], p["port"], p["active"], p["links"], p["ifindex"]) for p in it]')" \
	"[('rxe0', 1, True, 1, $(cat "/sys/class/net/$RSMC_DEV/ifindex"))]"
# One byte on each connection, in a call each.
[ "$RSMC_ROLE" = server ] && calls=send || calls=receive
rsmc stats --histograms | sed 's/^/# /'
is histograms "$(rsmc stats --histograms | grep -A1 "SMC-R $calls calls by size" | tr -s ' #')" \
	"SMC-R $calls calls by size (3):
 8 KiB # 3 (100.0 %)"
check plot sh -c 'rsmc stats --plot sizes.svg && python3 -c "
import xml.dom.minidom
assert xml.dom.minidom.parse(\"sizes.svg\").documentElement.tagName == \"svg\""'
barrier done
exec 9>&-
wait
ktap_exit
