#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# One guest runs rsmc, the other the in-tree smc module: bytes across each way, exact, and both
# modules' own words for it: who declined, who fell back, and why.
# Usage (both guests): interop/pair.sh [MEGABYTES]
. "$RSMC_SELFTESTS/lib.sh"

MB=${1:-100}
grep -q '^rsmc ' /proc/modules && mine=rsmc || mine=smc

fallbacks() { # what this side's module has counted: "client server"
	if [ $mine = rsmc ]; then
		awk '$1 == "fallback_client" { c = $2 } $1 == "fallback_server" { s = $2 }
			END { print c + 0, s + 0 }' /proc/net/smc_fallback
	else
		rsmc stats --json | python3 -c '
import json, sys
def walk(x, path=()):
    if isinstance(x, dict):
        for k, v in x.items(): yield from walk(v, path + (k,))
    elif isinstance(x, list):
        for v in x: yield from walk(v, path)
    else: yield "/".join(path), x
for k, v in walk(json.load(sys.stdin)):
    if "fallback" in k.lower() or "fback" in k.lower(): print(k, v)'
	fi
}

has_option() { # the last SYN and SYN-ACK that tcpdump saw carry the option
	tcpdump -r "$TMPDIR/syn.pcap" -nn -x 'tcp[tcpflags] & tcp-syn != 0' 2>/dev/null |
		tr -d ' \n\t' | grep -c 0101fe06e2d4 >/dev/null
}

ktap_plan 3
if [ "$RSMC_ROLE" = client ] && command -v tcpdump >/dev/null; then
	tcpdump -i "$RSMC_DEV" -w "$TMPDIR/syn.pcap" -U 'tcp port 7000' 2>/dev/null &
	dump=$!
	sleep 1
fi
echo "# before: $(fallbacks | tr '\n' ';')"
barrier start
check "transfer.$mine" transfer --family smc --ip v4 --mb "$MB" random_sizes nonblocking
printf '%s\n' "$ktap_output" | sed 's/^/# /'
check "transfer_v6.$mine" transfer --family smc --ip v6 --mb 4 --port 7100 random_sizes
if [ -n "$dump" ]; then
	kill $dump
	wait $dump 2>/dev/null
fi
after=$(fallbacks)
echo "# after: $(echo "$after" | tr '\n' ';')"
if [ $mine = rsmc ]; then
	grep -E '^(reason|peer)' /proc/net/smc_fallback | sed 's/^/# /'
	case $RSMC_ROLE in
	client) want='^reason client 0x03030000' ;;
	# The C client that has no device declines by itself: its word is our diagnosis.
	server) want='^reason server 0x(05000000|03030000)' ;;
	esac
	check reason.rsmc grep -qE "$want" /proc/net/smc_fallback
else
	rsmc stats | sed 's/^/# /'
	# "0303" is no device, "0500" the peer's decline, in the C module's list of reasons.
	check reason.smc sh -c 'rsmc stats --json | grep -qiE "0x0?(3030000|5000000)|50528256|83886080"'
fi
barrier end
ktap_exit
