#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# `rsmc run`, `ss`, `why`, `stats`, `ueid`, `pnet` as a user meets them, in two namespaces, without RDMA: an
# SMC client against a plain TCP server and against an SMC server. The in-tree module passes as well
# (what only rsmc has is skipped then).
. "$RSMC_SELFTESTS/lib.sh"

ktap_plan 75
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
# field EXPRESSION...: of the JSON on standard input, called `it`. Without what Python does at its start for others:
# that is half of this test's time on an emulated processor.
field() {
	python3 -I -S -c "import json, sys; it = json.load(sys.stdin); print(($1))"
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

# 7001: plain TCP, 7002: SMC, 7003: SMC over IPv6 by AF_SMC
background ip netns exec b python3 serve.py "$RSMC_PEER_ADDR" 7001
background ip netns exec b rsmc run --debug -- python3 serve.py "$RSMC_PEER_ADDR" 7002 2> server.log
background ip netns exec b rsmc run --family smc -- python3 serve.py "$RSMC_PEER_ADDR6" 7003
listeners() { [ "$(ns b rsmc ss -l --json | field 'len(it)')" = 2 ]; }
check listeners_appear wait_for 10 listeners
check preload_says_smc grep -q 'is SMC (IPPROTO_SMC)' server.log
is listener_state "$(ns b rsmc ss -l --json --sport 7002 | field 'it[0]["state"]')" LISTEN
is listener_mode "$(ns b rsmc ss -l --json --sport 7002 | field 'it[0]["mode"]')" None
is listener_process "$(ns b rsmc ss -l --json --sport 7003 | field 'it[0]["processes"][0]["comm"]')" python3
is hidden_by_default "$(ns b rsmc ss --json)" "[]"
is other_namespace_is_empty "$(ns a rsmc ss -a --json)" "[]"

tcp_listens() { ns b ss -ltn | grep -q ':7001 '; }
check plain_listener wait_for 10 tcp_listens
background ip netns exec a rsmc run --debug -- python3 connect.py "$RSMC_PEER_ADDR" 7001 "$RSMC_PEER_ADDR" 7002 \
	"$RSMC_PEER_ADDR6" 7003 > client.log 2> client.debug
check connected wait_for 20 grep -q connected client.log
is client_sockets "$(grep -c 'is SMC' client.debug)" 3
is connections "$(ns a rsmc ss --json | field 'len(it)')" 3
is states "$(ns a rsmc ss --json | field '{entry["state"] for entry in it}')" "{'ACTIVE'}"
is all_fell_back "$(ns a rsmc ss --json | field '{entry["mode"] for entry in it}')" "{'TCP'}"
is reason_plain_server "$(ns a rsmc ss --json --dport 7001 | field 'it[0]["fallback"]["name"]')" PEERNOSMC
is mode_filter "$(ns a rsmc ss --json --mode smcr --mode smcd)" "[]"
is server_has_two "$(ns b rsmc ss --json | field 'len(it)')" 2
is server_was_declined "$(ns b rsmc ss --json | field '{entry["fallback"]["name"] for entry in it}')" "{'PEERDECL'}"
check table_in_words sh -c "ip netns exec a rsmc ss | grep -q 'did not offer SMC'"
check numeric sh -c "ip netns exec a rsmc ss -n | grep -q 0x03010000"

# Addresses of IPPROTO_SMC sockets: the in-tree module does not tell them.
if [ -n "$in_tree" ]; then
	skip addresses "the in-tree module does not tell addresses of IPPROTO_SMC sockets"
	skip addresses_v6 "the in-tree module does not tell addresses of IPPROTO_SMC sockets"
else
	is addresses "$(ns a rsmc ss --json --dport 7001 | field 'it[0]["local"]["address"], it[0]["remote"]["address"]')" \
		"('$RSMC_ADDR', '$RSMC_PEER_ADDR')"
	is addresses_v6 "$(ns a rsmc ss --json --dport 7003 | field 'it[0]["local"]["address"], it[0]["remote"]["address"]')" \
		"('$RSMC_ADDR6', '$RSMC_PEER_ADDR6')"
fi

# Bytes of a fallen back connection are TCP's, found by its addresses. There was no SMC handshake with 7001.
if [ -n "$in_tree" ]; then
	skip bytes "the in-tree module does not tell addresses of IPPROTO_SMC sockets"
else
	is bytes "$(ns a rsmc ss --json --dport 7001 | field 'it[0]["bytes"]["received"], it[0]["bytes"]["sent"]')" "(1, 0)"
fi
# The server's end of the third one is a socket of AF_SMC, whose addresses both modules tell.
is filter_address "$(ns b rsmc ss --json --src fd77::/16 | field '[s["local"]["port"] for s in it]')" "[7003]"
is filter_reason "$(ns a rsmc ss --json --reason PEERNOSMC | field 'len(it)')" 1
is filter_process "$(ns a rsmc ss --json --process python3 | field 'len(it)')" 3
is filter_other_process "$(ns a rsmc ss --json --process python)" "[]"
is watch_prints_lines "$(ns a rsmc ss --json --watch=0.1 --count 3 | grep -c '^\[{')" 3

is why_client "$(ns a rsmc why --json | field 'it["fallback_client"], it["fallback_server"]')" "(3, 0)"
is why_plain_server "$(ns a rsmc why --json | field '[r["count"] for r in it["reasons"] if r["name"] == "PEERNOSMC"]')" "[1]"
if [ -n "$in_tree" ]; then
	skip why_peer "the in-tree module does not count by peer"
	skip why_other_peer "the in-tree module does not count by peer"
else
	check why_peer sh -c "ip netns exec a rsmc why $RSMC_PEER_ADDR | grep -q PEERNOSMC"
	check why_other_peer sh -c "ip netns exec a rsmc why 192.0.2.1 | grep -q 'No fallback'"
fi
is why_elsewhere "$(rsmc why --json | field 'it["fallback_client"], it["fallback_server"]')" "(0, 0)"

# The tables and counters by netlink.
ueids() { ns a rsmc ueid show --json | field '"RSMC-TEST.1" in it'; }
check ueid_add ns a rsmc ueid add rsmc-test.1
is ueid_added "$(ueids)" True
is ueid_twice "$(status ns a rsmc ueid add RSMC-TEST.1)" 5
check ueid_del ns a rsmc ueid del RSMC-TEST.1
is ueid_deleted "$(ueids)" False
is ueid_del_unknown "$(status ns a rsmc ueid del RSMC-TEST.1)" 5
is ueid_not_permitted "$(status setpriv --reuid 65534 --clear-groups --inh-caps -all rsmc ueid add A)" 4
check pnet_add ns a rsmc pnet add net1 -I va
is pnet_added "$(ns a rsmc pnet show net1 --json | field 'it[0]["interface"], it[0]["ibdevice"]')" "('va', None)"
is pnet_twice "$(status ns a rsmc pnet add net2 -I va)" 5
is pnet_is_by_namespace "$(ns b rsmc pnet show --json)" "[]"
check pnet_del ns a rsmc pnet del NET1
is pnet_deleted "$(ns a rsmc pnet show --json)" "[]"
is stats "$(ns a rsmc stats --json | field 'it["fallback"]["client"], it["smc_r"]["client_v2"]')" "(3, 0)"
is prometheus "$(ns a rsmc stats --prometheus | grep PEERNOSMC)" \
	'smc_fallback_reasons_total{role="client",reason="PEERNOSMC",code="0x03010000"} 1'
check stats_reset ns a rsmc stats reset
is stats_count_from_there "$(ns a rsmc stats --json | field 'it["fallback"]["client"], it["fallback"]["reasons"]')" "(0, [])"
is stats_absolute "$(ns a rsmc stats --absolute --json | field 'it["fallback"]["client"], it["since"]')" "(3, None)"
is stats_reset_is_by_namespace "$(ns b rsmc stats --json | field 'it["fallback"]["server"], it["since"]')" "(2, None)"
is stats_rates "$(ns a rsmc stats --interval 0.1 --count 2 --json | grep -c '"fallback.client":0')" 2

if [ -n "$in_tree" ]; then
	skip strict_connect "the in-tree module has no strict mode"
	skip strict_is_counted "the in-tree module has no strict mode"
else
	check_fails strict_connect ns a timeout "$(slow 20)" rsmc run --strict -- python3 connect.py "$RSMC_PEER_ADDR" 7001
	is strict_is_counted "$(ns a rsmc why --json | field 'it["strict_refused"], it["fallback_client"]')" "(1, 3)"
fi

# One picture where there is no terminal; on one until a key ends it, and all is as it was then.
is top "$(ns a rsmc top --interval 0.2 | sed -n '1s/;.*//p')" "0 SMC-R, 0 SMC-D, 3 TCP connections"
is top_reasons "$(ns a rsmc top --interval 0.2 | grep -c 'PEERNOSMC as client (0/s)')" 1
cat > screen.py <<'E'
import os, select, signal, subprocess, sys, termios
outer, inner = os.openpty()
before = termios.tcgetattr(inner)
def start():
    return subprocess.Popen("ip netns exec a rsmc top --interval 60".split(), stdin=inner, stdout=inner,
        env=os.environ | {"TERM": "linux"})
top = start()
shown = b""
def until(text):
    global shown
    while text not in shown:
        assert select.select([outer], [], [], float(sys.argv[1]))[0], shown
        shown += os.read(outer, 4096)
until(b"\x1b[33mTCP\x1b[0m")
assert termios.tcgetattr(inner) != before
os.write(outer, b"r")
os.write(outer, b"q")
until(b"\x1b[?1049l")
assert top.wait() == 0
assert termios.tcgetattr(inner) == before
# A signal that ends it leaves nothing behind, either.
for number in signal.SIGTERM, signal.SIGHUP, signal.SIGINT:
    shown = b""
    top = start()
    until(b"\x1b[33mTCP\x1b[0m")
    top.send_signal(number)
    until(b"\x1b[?1049l")
    assert top.wait() == -number, top.returncode
    assert termios.tcgetattr(inner) == before
E
check top_on_a_terminal python3 screen.py "$(slow 20)"

# A report, by root and by a user who may see little.
report() { ns a "$@" rsmc report --output - | tar -xO --wildcards -f - "*/$file"; }
file=sockets.json
is report_sockets "$(report env | field 'len(it), {s["mode"] for s in it if s["state"] == "ACTIVE"}')" "(3, {'TCP'})"
file=sysctls.txt
is report_sysctls "$(report env | grep -c '^/proc/sys/net/smc/wmem: ')" 1
file=README.txt
[ -n "$in_tree" ] && missing=fallback.txt || missing=
is report_misses "$(report env | sed -n 's/^  \([a-z-]*\.[a-z]*\): .*/\1/p')" "$missing"
echo 1 > /proc/sys/kernel/dmesg_restrict
is report_unprivileged "$(report setpriv --reuid 65534 --clear-groups --inh-caps -all | grep -c '^  kernel-log.txt: ')" 1
check report_is_private sh -c 'rsmc report --output report.tar && [ "$(stat -c %a report.tar)" = 600 ] && ! rsmc report --output report.tar'

# What SMC needs, test connections, and one process.
checks() { ns a rsmc why "$@" --json | field '{c["name"]: c["verdict"] for c in it["checks"]}'; }
is why_checks "$(checks "$RSMC_PEER_ADDR" | tr -d "{}' " | tr , '\n' | grep -v eid | paste -sd' ')" \
	"module:ok device:bad route:ok mtu:ok gid:bad"
is why_no_route "$(checks 192.0.2.1 | grep -c "'route': 'bad'")" 1
# A way that lets less pass than the interface does.
ns a ip route add 198.51.100.0/24 via "$RSMC_PEER_ADDR" mtu 1000
is why_route "$(ns a rsmc why 198.51.100.7 | grep -c " va from $RSMC_ADDR through $RSMC_PEER_ADDR")" 1
is why_path_mtu "$(ns a rsmc why 198.51.100.7 | grep -c 'BAD *mtu *1000 bytes on the way, 1500 on va')" 1
is why_probe "$(ns a rsmc why "$RSMC_PEER_ADDR" --probe 7001 --json |
	field 'it["probe"]["mode"], it["probe"]["fallback"]["name"], it["probe"]["peer"]')" "('TCP', 'PEERNOSMC', None)"
# One SYN tells what is there, in either family: no SMC, SMC.
option() { ns a rsmc why "$1" --probe "$2" --json | field '[c["verdict"] for c in it["checks"] if c["name"] == "option"]'; }
is why_no_option "$(option "$RSMC_PEER_ADDR" 7001)" "['bad']"
is why_option "$(option "$RSMC_PEER_ADDR" 7002) $(option "$RSMC_PEER_ADDR6" 7003)" "['ok'] ['ok']"
# A host that returns the options it gets, made of a packet socket: its address is nobody's, so no kernel answers.
cat > echo.py <<'E'
import socket, struct
packets = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
packets.bind(("vb", 0x0800))
def sum16(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total > 0xffff:
        total = (total & 0xffff) + (total >> 16)
    return 0xffff - total
print("ready", flush=True)
while True:
    packet, sender = packets.recvfrom(2048)
    source, target = packet[12:16], packet[16:20]
    tcp = packet[(packet[0] & 15) * 4:]
    if target != socket.inet_aton("10.77.0.99") or packet[9] != 6 or tcp[13] & 0x17 != 0x02:
        continue
    ports, sequence = tcp[2:4] + tcp[0:2], struct.unpack(">I", tcp[4:8])[0]
    options = tcp[20:(tcp[12] >> 4) * 4]
    tcp = ports + struct.pack(">IIBBHHH", 7, sequence + 1 & 0xffffffff, tcp[12], 0x12, 8192, 0, 0) + options
    check = sum16(target + source + struct.pack(">HH", 6, len(tcp)) + tcp)
    tcp = tcp[:16] + struct.pack(">H", check) + tcp[18:]
    header = struct.pack(">BBHIBBH", 0x45, 0, 20 + len(tcp), 0, 64, 6, 0) + target + source
    header = header[:10] + struct.pack(">H", sum16(header)) + header[12:]
    packets.sendto(header + tcp, sender)
E
ns a ip neigh add 10.77.0.99 lladdr "$(ns b cat /sys/class/net/vb/address)" dev va nud permanent
background ip netns exec b python3 echo.py > echo.log
check echo_ready wait_for 10 grep -q ready echo.log
if [ -n "$in_tree" ]; then
	skip why_echo "the in-tree module waits for an answer to its handshake"
else
	is why_echo "$(ns a rsmc why 10.77.0.99 --probe 80 | grep -c 'returns any TCP option')" 1
fi
is why_probe_status "$(status ns a rsmc why "$RSMC_PEER_ADDR" --probe 7001)" 6
is why_probe_nobody "$(status ns a rsmc why "$RSMC_PEER_ADDR" --probe 7099) $(option "$RSMC_PEER_ADDR" 7099)" "1 ['note']"
pid=$(ns a rsmc ss --json --process python3 | field 'it[0]["processes"][0]["pid"]')
is why_process "$(ns a rsmc why "$pid" --json | field 'it["checks"][0]["verdict"], len(it["sockets"])')" "('ok', 3)"

# The end of the program is the end of its sockets.
kill $children 2> /dev/null
children=
gone() { [ "$(ns a rsmc ss -a --json)" = "[]" ] && [ "$(ns b rsmc ss -l --json)" = "[]" ]; }
check sockets_are_gone wait_for 30 gone
ktap_exit
