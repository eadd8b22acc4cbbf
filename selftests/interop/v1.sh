#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# What is special about version 1, by interop/with_v1.sh: messages byte by byte, joining, IPv6, VLANs, subnets, and
# that version 2 is preferred. Both modules say which version they have spoken.
# Usage (both guests): interop/v1.sh [MEGABYTES]
. "$RSMC_SELFTESTS/lib.sh"
MB=${1:-50}
cd "$TMPDIR" || exit 1
[ "$RSMC_ROLE" = server ] && n=2 m=1 || n=1 m=2
if grep -q '^rsmc ' /proc/modules; then
	mine=rsmc family=inet
	smc() { transfer --mode 0 --family inet "$@"; }
	tcp() { transfer --mode 1 --family inet "$@"; }
else
	mine=smc family=smc
	smc() { transfer --info off --family smc "$@"; }
	tcp() { smc "$@"; }
fi
cat >held.py <<'E2'
# Connections that both ends hold until they are told.
import socket, sys
address, role, count = sys.argv[1], sys.argv[2], 3
held = []
if role == "server":
    listener = socket.create_server((address, 7400))
    print("listening", flush=True)
    for _ in range(count):
        connection, _ = listener.accept()
        connection.sendall(b"x")
        held.append(connection)
else:
    for _ in range(count):
        connection = socket.create_connection((address, 7400))
        assert connection.recv(1) == b"x"
        held.append(connection)
print("connected", flush=True)
sys.stdin.read()
E2
groups() { # of groups with connections: role, version, VLAN, connections, links
	rsmc link --json | python3 -I -S -c '
import json, sys
for g in json.load(sys.stdin):
    if g["connections"]:
        print(g["role"], "version", g["version"] or 1, "vlan", g["vlan"], "connections", g["connections"], len(g["links"]))'
}
told() { # how often we have fallen back for this reason
	if [ $mine = rsmc ]; then
		awk -v role="$RSMC_ROLE" -v code="$1" '$1 == "reason" && $2 == role && $3 == code { n = $4 }
			END { print n + 0 }' /proc/net/smc_fallback
	else
		rsmc stats --json | python3 -I -S -c '
import json, sys
reasons = json.load(sys.stdin)["fallback"]["reasons"]
print(sum(r["count"] for r in reasons if [r["role"], r["code"]] == sys.argv[1:]))' "$RSMC_ROLE" "$1"
	fi
}
hold() { # hold NAME EXPECTED: three connections, which join one group; what this module tells of it
	rm -f hold log
	mkfifo hold
	[ "$RSMC_ROLE" = client ] && address=$RSMC_PEER_ADDR || address=$RSMC_ADDR
	[ "$RSMC_ROLE" = server ] || barrier "listening.$1"
	rsmc run --family $family -- python3 held.py "$address" "$RSMC_ROLE" <hold >log 2>&1 &
	exec 9>hold
	[ "$RSMC_ROLE" = client ] || { wait_for 10 grep -q listening log; barrier "listening.$1"; }
	check "$1.connected" wait_for 20 grep -q connected log
	barrier "connected.$1"
	is "$1.group" "$(groups)" "$RSMC_ROLE $2"
	barrier "held.$1"
	exec 9>&-
	wait $!
	wait_for 10 gone
	barrier "left.$1"
}
gone() { [ -z "$(groups)" ]; }
seen() { # seen NAME REGEX [COUNT]: as many packets have this, or one at least
	seen=$(grep -cE "$2" hex)
	if [ "$seen" = "${3:-$seen}" ] && [ "$seen" -gt 0 ]; then ok "bytes.$1"; else not_ok "bytes.$1" "$seen times"; fi
}

# First contact, and two that join, as they are on the wire.
ktap_plan $([ "$RSMC_ROLE" = client ] && echo 22 || echo 14)
if [ "$RSMC_ROLE" = client ]; then
	tcpdump -i "$RSMC_DEV" -w "$TMPDIR/wire.pcap" --immediate-mode -U 'tcp port 7400 or udp port 4791' 2>/dev/null &
	dump=$!
	sleep 1
fi
hold joined "version 1 vlan 0 connections 3 1"
if [ "$RSMC_ROLE" = client ]; then
	kill $dump
	wait $dump 2>/dev/null
	tcpdump -r "$TMPDIR/wire.pcap" -nn -x 2>/dev/null | sed 's/^[[:space:]]*0x[0-9a-f]*://; t; s/.*/:/' |
		tr -d ' \n\t' | tr : '\n' >hex
	grep -oE 'e2d4c3d90[1-4]00.*e2d4c3d9' hex | sed 's/^/# /'
	eye=e2d4c3d9 id='.{16}' gid='.{32}' mac='.{12}'
	prefix=0a4d000018000000
	# With C as client there is no version 2; ours offers that as well, with its one enterprise id.
	[ $mine = smc ] && head=005c28 v2offset=0000 more= ||
		head=00a420 v2offset=0024 more='0100001000000000.{32}.{4}0001(00){12}52534d432d44454641554c54(20){20}'
	seen proposal "${eye}01$head$id$gid${mac}0028(00){10}$v2offset.{16}(00){20}$prefix$more$eye\$" 3
	end="$id$gid$mac.{6}.{8}.{2}.{8}.{2}00.{16}00.{6}$eye\$"
	seen accept.first "${eye}02004418$end" 1
	seen accept.join "${eye}02004410$end" 2
	seen confirm.first "${eye}03004418$end" 1
	seen confirm.join "${eye}03004410$end" 2
	# CONFIRM_LINK and its answer; ADD_LINK, and that it is rejected.
	seen confirm_link "012c0003$mac$gid.{6}01.{8}0200(00){8}" 1
	seen confirm_link.answer "012c0083$mac$gid.{6}01.{8}0200(00){8}" 1
	seen add_link.rejected '022c0[01]c0' 1
fi

check v4 smc --ip v4 --mb "$MB"
printf '%s\n' "$ktap_output" | sed 's/^/# /'
check v6 smc --ip v6 --mb 8 --port 7100
printf '%s\n' "$ktap_output" | sed 's/^/# /'
barrier moved

# A VLAN: its own GID, and its own group.
ip link add link "$RSMC_DEV" name vlan7 type vlan id 7 || exit 1
ip addr add 10.7.0.$n/24 dev vlan7 || exit 1
ip link set vlan7 up || exit 1
plain=$RSMC_ADDR plain_peer=$RSMC_PEER_ADDR
export RSMC_ADDR=10.7.0.$n RSMC_PEER_ADDR=10.7.0.$m
barrier vlan
before=$(cat /sys/class/net/vlan7/statistics/tx_bytes)
check vlan smc --ip v4 --mb 8 --port 7200
printf '%s\n' "$ktap_output" | sed 's/^/# /'
check vlan.bytes test $(($(cat /sys/class/net/vlan7/statistics/tx_bytes) - before)) -gt 8000000
hold vlan.joined "version 1 vlan 7 connections 3 1"
ip link delete vlan7 || exit 1

# Subnets that differ: the server declines, and says why.
[ "$RSMC_ROLE" = server ] && len=16 code=0x03070000 || len=24 code=0x05000000
ip addr add 10.8.0.$n/$len dev "$RSMC_DEV" || exit 1
export RSMC_ADDR=10.8.0.$n RSMC_PEER_ADDR=10.8.0.$m
before=$(told $code)
barrier subnets
check subnet tcp --ip v4 --mb 1 --port 7300 random_sizes
is subnet.reason "$(($(told $code) - before))" 1
barrier subnet
ip addr del 10.8.0.$n/$len dev "$RSMC_DEV" || exit 1
export RSMC_ADDR="$plain" RSMC_PEER_ADDR="$plain_peer"

# Without RoCE v1 at the server: no version is left.
if [ "$RSMC_ROLE" = server ]; then
	rdma link delete rxe0 && rmmod roce_v1 && rdma link add rxe0 type rxe netdev "$RSMC_DEV" || exit 1
	code=0x03030000
fi
before=$(told $code)
barrier no_gid
check no_gid tcp --ip v4 --mb 1 --port 7310 random_sizes
is no_gid.reason "$(($(told $code) - before))" 1
barrier no_gid.told
if [ "$RSMC_ROLE" = server ]; then
	rdma link delete rxe0 && insmod /rsmc/kmod/roce_v1.ko && rdma link add rxe0 type rxe netdev "$RSMC_DEV" || exit 1
fi

# With an enterprise id in common it is version 2.
[ $mine = rsmc ] || rsmc ueid add RSMC-DEFAULT || exit 1
barrier ueid
hold preferred "version 2 vlan 0 connections 3 1"
ktap_exit
