#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# One guest runs rsmc, the other the in-tree smc module: bytes across each way, exact, and both
# modules' own words for it: who declined, who fell back, and why.
# Usage (both guests): interop/pair.sh [MEGABYTES]
. "$RSMC_SELFTESTS/lib.sh"

MB=${1:-100}
# Of AF_SMC connections of ours never begin as TCP; those of IPPROTO_SMC are not to with such a peer.
grep -q '^rsmc ' /proc/modules && mine=rsmc family=inet || mine=smc family=smc

counted() { # how often this side's module has fallen back in its role for this reason
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

told() { # whether the three connections of this test were counted for it
	echo "# $1: $before before, $(counted "$1") now"
	[ "$(counted "$1")" -eq $((before + 3)) ]
}

options() { # how many of the packets that this filter takes there are, and carry the option
	tcpdump -r "$TMPDIR/syn.pcap" -nn -x "tcp[tcpflags] & (tcp-syn|tcp-ack) == $1" 2>/dev/null |
		sed 's/^[[:space:]]*0x[0-9a-f]*://; t; s/.*/:/' | tr -d ' \n\t' | tr : '\n' |
		awk '/./ { n++ } /fe06e2d4c3d9/ { with++ } END { print n + 0, with + 0 }'
}

has_option() { # every SYN and every SYN-ACK does, and there are some
	for flags in tcp-syn '(tcp-syn|tcp-ack)'; do
		seen=$(options "$flags")
		echo "# $flags: $seen with the option"
		[ "${seen% *}" -gt 0 ] && [ "${seen% *}" = "${seen#* }" ] || return 1
	done
}

exact() { # SYN and SYN-ACK end with these bytes, with `path` as it is by default
	if [ $mine = rsmc ]; then
		[ "$(cat /proc/sys/net/smc/path)" = 2 ] || return 1
		# The identity of this host follows, which is nobody's business there.
		syn='0101fe06e2d4c3d9fd0c727318.{14}$'
	else
		syn='0101fe06e2d4c3d9$'
	fi
	bytes tcp-syn "$syn" && bytes '(tcp-syn|tcp-ack)' '0101fe06e2d4c3d9$'
}

bytes() { # each packet that this filter takes matches
	tcpdump -r "$TMPDIR/syn.pcap" -nn -x "tcp[tcpflags] & (tcp-syn|tcp-ack) == $1" 2>/dev/null |
		sed 's/^[[:space:]]*0x[0-9a-f]*://; t; s/.*/:/' | tr -d ' \n\t' | tr : '\n' | grep . >"$TMPDIR/bytes"
	echo "# $1: $(tail -n 1 "$TMPDIR/bytes")"
	[ -s "$TMPDIR/bytes" ] && ! grep -vqE "$2" "$TMPDIR/bytes"
}

# A client that has no device declines by itself, its server hears of it.
if [ "$RSMC_ROLE" = client ]; then
	ktap_plan 5
	code=0x03030000
	tcpdump -i "$RSMC_DEV" -w "$TMPDIR/syn.pcap" -U 'tcp port 7000' 2>/dev/null &
	dump=$!
	sleep 1
else
	ktap_plan 3
	code=0x05000000
fi
before=$(counted "$code")
barrier start
check "transfer.$mine" transfer --family $family --ip v4 --mb "$MB" random_sizes nonblocking
printf '%s\n' "$ktap_output" | sed 's/^/# /'
check "transfer_v6.$mine" transfer --family $family --ip v6 --mb 4 --port 7100 random_sizes
if [ -n "$dump" ]; then
	kill $dump
	wait $dump 2>/dev/null
	check "option.$mine" has_option
	printf '%s\n' "$ktap_output"
	check "exact.$mine" exact
	printf '%s\n' "$ktap_output"
fi
if [ $mine = rsmc ]; then
	grep -E '^(reason|peer)' /proc/net/smc_fallback | sed 's/^/# /'
	check reason.rsmc told "$code"
else
	rsmc stats | sed 's/^/# /'
	check reason.smc told "$code"
fi
barrier end
ktap_exit
