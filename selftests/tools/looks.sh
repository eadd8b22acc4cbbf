#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# `rsmc run --strict`, `top`, `report` and what `why` finds out about a host or a process, with the servers and
# connections of cli.sh: what these say depends on the module and on what the host has, little on the kernel.
. "$RSMC_SELFTESTS/lib.sh"

ktap_plan 25
. "$RSMC_SELFTESTS/tools/served.sh"
check listeners_appear wait_for 10 listeners
check plain_listener wait_for 10 tcp_listens
client
check connected wait_for 20 is_connected

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
restricted=$(cat /proc/sys/kernel/dmesg_restrict)
echo 1 >/proc/sys/kernel/dmesg_restrict
is report_unprivileged "$(report setpriv --reuid 65534 --clear-groups --inh-caps -all | grep -c '^  kernel-log.txt: ')" 1
echo "$restricted" >/proc/sys/kernel/dmesg_restrict
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
ktap_exit
