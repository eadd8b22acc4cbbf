#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# iperf3 in its ways: streams, reverse, both ways, IPv6, zero copy, small writes, exact byte counts.
. "$RSMC_SELFTESTS/conformance/common.sh"
need iperf3 python3 ss

judge() { # judge FILE BYTES: no error, what was sent was received, and one way had all
	python3 - "$1" "$2" <<'END'
import json, sys
r = json.load(open(sys.argv[1]))
if "error" in r:
    sys.exit(r["error"])
e, want = r["end"], int(sys.argv[2])
most = 0
for way in "", "_bidir_reverse":
    if "sum_sent" + way not in e:
        continue
    sent, got = e["sum_sent" + way]["bytes"], e["sum_received" + way]["bytes"]
    print(f"# sent{way} {sent} received{way} {got}")
    if got == 0 or abs(sent - got) > max(sent // 10, 8 << 20):
        sys.exit(f"sent{way} {sent} received{way} {got}")
    # The run ends as soon as one way has them.
    most = max(most, sent, got)
if most < want:
    sys.exit(f"{most} bytes, wanted {want}")
END
}

ktap_plan 18
for kind in plain smc; do
	c0=$(counted a client) s0=$(counted b server)
	n=0
	while read -r name bytes flags; do
		n=$((n + 1))
		port=$((5200 + n))
		run b $kind iperf3 -s -1 -p $port >"$TMPDIR/server" 2>&1 &
		srv=$!
		up $port
		# shellcheck disable=SC2086
		run a $kind timeout "$(slow 60)" iperf3 -J -p $port -c ${flags#* } -n "$bytes" >"$TMPDIR/out" 2>"$TMPDIR/err"
		check "$name.$kind" judge "$TMPDIR/out" "$bytes"
		kill $srv 2>/dev/null
		wait $srv 2>/dev/null
	done <<END
one_stream 16000000 x 10.77.0.2
four_streams 16000000 x 10.77.0.2 -P 4
reverse 16000000 x 10.77.0.2 -R
both_ways 16000000 x 10.77.0.2 --bidir
ipv6 16000000 x fd77::2
zero_copy 16000000 x 10.77.0.2 -Z
small_writes 500000 x 10.77.0.2 -l 64
nodelay_mss 4000000 x 10.77.0.2 -N -M 1000 -w 64K
END
	proof iperf3 $kind "$c0" "$s0" 16
done
ktap_exit
