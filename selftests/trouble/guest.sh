#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# trouble/guest.sh client|server KINDS
# The guest named, with `survivor`'s connections of these KINDS and a storm of short ones, is killed from one
# instruction to the next. The other one must find out by itself, on each connection.
# That its module unloads then, the lab sees.
. "$RSMC_SELFTESTS/lib.sh"
. "$RSMC_SELFTESTS/trouble/common.sh"
victim=$1 kinds=$2

mode=0
if grep -q '^smc ' /proc/modules; then
	rsmc ueid add RSMC-DEFAULT
	mode=any
fi
usual=$(sysctl -n net.smc.smcr_testlink_time)
trap 'sysctl -qw net.smc.smcr_testlink_time="$usual"' EXIT
sysctl -qw net.smc.smcr_testlink_time=2

# The client begins when the server listens.
if [ "$RSMC_ROLE" = server ]; then
	serving "$TMPDIR/log" --mode $mode --kinds "$kinds"
	stress --mode any >/dev/null 2>&1 &
fi
barrier listening
if [ "$RSMC_ROLE" = client ]; then
	holding "$TMPDIR/log" --mode $mode --kinds "$kinds"
	timeout "$(slow 60)" stress --mode any --short 1000000 short >"$TMPDIR/storm" 2>&1 &
	storm=$!
fi
if [ "$RSMC_ROLE" = "$victim" ]; then
	ktap_plan 0
	barrier carrying
	sleep 300
	exit 1
fi
# The survivors' bytes leave a slow kernel little time for others.
stormy() {
	awk -v want=$((15 + $(less 45))) '$1 == "smc_connections" { n = $2 } END { exit n < want }' /proc/net/smc_fallback
}

ktap_plan 4
barrier carrying
check begun grep "all .* carry data" "$TMPDIR/log"
check storm wait_for 10 stormy
rsmc-barrier kill-peer 2>/dev/null
ended "${RSMC_ROLE}_noticed" "${client:-$server}" "$TMPDIR/log" 6
sed 's/^/# /' "$TMPDIR/log"
# A connect() under way when the peer dies waits as long as TCP's does.
[ -z "$storm" ] || kill -9 $storm 2>/dev/null
check nothing_left wait_for 5 sh -c '! rsmc ss | grep SMC-R'
ktap_exit
