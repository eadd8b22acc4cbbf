#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# SMC-R version 1 between this module in one guest and the C module in the other. The C module has no enterprise
# id and so no version 2; soft-RoCE gets GIDs of RoCE v1 from kmod/roce_v1. Both modules say which version they
# have spoken. Usage (both guests): interop/v1.sh [MEGABYTES]
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
	# One that a test before this has added.
	rsmc ueid del RSMC-DEFAULT 2>/dev/null
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
groups() { # of groups with connections: role, version, VLAN, connections, own GID and the peer's
	rsmc link --json | python3 -c '
import json, sys
for g in json.load(sys.stdin):
    if g["connections"]:
        l = g["links"][0]
        print(g["role"], "version", g["version"] or 1, "vlan", g["vlan"], "connections", g["connections"], len(g["links"]))
        print("#", l["gid"], l["peer_gid"], l["state"], file=sys.stderr)'
}
count() { # connections by this version in our role
	rsmc stats --json | python3 -c '
import json, sys
def find(it, key):
    if isinstance(it, dict):
        return it[key] if key in it else next((x for x in (find(v, key) for v in it.values()) if x is not None), None)
it = json.load(sys.stdin)
print(find(find(it, "smc_r"), sys.argv[1]))' "${RSMC_ROLE}_$1"
}
told() { # how often we have fallen back for this reason
	if [ $mine = rsmc ]; then
		awk -v role="$RSMC_ROLE" -v code="$1" '$1 == "reason" && $2 == role && $3 == code { n = $4 }
			END { print n + 0 }' /proc/net/smc_fallback
	else
		rsmc stats --json | python3 -c '
import json, sys
reasons = json.load(sys.stdin)["fallback"]["reasons"]
print(sum(r["count"] for r in reasons if [r["role"], r["code"]] == sys.argv[1:]))' "$RSMC_ROLE" "$1"
	fi
}
hold() { # hold NAME EXPECTED: three connections, which join one group; what both modules tell of it
	rm -f hold log
	mkfifo hold
	address=$RSMC_PEER_ADDR
	[ "$RSMC_ROLE" = client ] || address=$RSMC_ADDR
	if [ "$RSMC_ROLE" = client ]; then
		barrier "listening.$1"
		rsmc run --family $family -- python3 held.py "$address" client <hold >log 2>&1 &
		exec 9>hold
	else
		rsmc run --family $family -- python3 held.py "$address" server <hold >log 2>&1 &
		exec 9>hold
		wait_for 10 grep -q listening log
		barrier "listening.$1"
	fi
	check "$1.connected" wait_for 20 grep -q connected log
	barrier "connected.$1"
	is "$1.group" "$(groups)" "$RSMC_ROLE $2"
	barrier "held.$1"
	exec 9>&-
	wait
}
gone() { [ -z "$(groups 2>/dev/null)" ]; }

ktap_plan 15
modprobe rdma_rxe || exit 1
insmod /rsmc/kmod/roce_v1.ko || exit 1
rdma link add rxe0 type rxe netdev "$RSMC_DEV" || exit 1
sed 's/^/# /' /sys/class/infiniband/rxe0/ports/1/gid_attrs/types/* 2>/dev/null | sort | uniq -c
rsmc stats reset
barrier ready
check v4 smc --ip v4 --mb "$MB"
printf '%s\n' "$ktap_output" | sed 's/^/# /'
check v6 smc --ip v6 --mb 8 --port 7100
printf '%s\n' "$ktap_output" | sed 's/^/# /'
check spoken test "$(count v1)" -ge 6
is no_version_2 "$(count v2)" 0
barrier spoken
hold joined "version 1 vlan 0 connections 3 1"
wait_for 10 gone
barrier left

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
wait_for 10 gone
barrier vlan.left
ip link delete vlan7 || exit 1

# Subnets that differ: the server declines, and says why.
[ "$RSMC_ROLE" = server ] && len=16 || len=24
ip addr add 10.8.0.$n/$len dev "$RSMC_DEV" || exit 1
export RSMC_ADDR=10.8.0.$n RSMC_PEER_ADDR=10.8.0.$m
[ "$RSMC_ROLE" = server ] && code=0x03070000 || code=0x05000000
before=$(told $code)
barrier subnets
check subnet tcp --ip v4 --mb 1 --port 7300 random_sizes
is subnet.reason "$(($(told $code) - before))" 1
barrier subnet
ip addr del 10.8.0.$n/$len dev "$RSMC_DEV" || exit 1
export RSMC_ADDR="$plain" RSMC_PEER_ADDR="$plain_peer"

# With an enterprise id in common it is version 2 again.
[ $mine = rsmc ] || rsmc ueid add RSMC-DEFAULT || exit 1
barrier ueid
before=$(count v1)
hold preferred "version 2 vlan 0 connections 3 1"
is no_more "$(count v1)" "$before"
barrier end
rdma link delete rxe0 || exit 1
rmmod roce_v1 || exit 1
ktap_exit
