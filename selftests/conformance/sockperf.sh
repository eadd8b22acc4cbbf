#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# sockperf with the server's ways to wait for data: every answer comes back, in order and to the byte.
. "$RSMC_SELFTESTS/conformance/common.sh"
need sockperf ss

# judge N LEAST: the client asked for an answer to each Nth message; its report names messages and no lost, doubled or
# misplaced one.
judge() {
	sed 's/\x1b\[[0-9;]*m//g' "$TMPDIR/out" >"$TMPDIR/plain"
	grep -E 'SentMessages|dropped messages|ERROR|failed' "$TMPDIR/plain"
	grep -q '# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0' "$TMPDIR/plain" &&
		awk -F'[=;]' -v each="$1" -v least="$2" '/Valid Duration/ { n = $4; m = $6 } END { exit !(n > least && m * each > n * 9 / 10) }' "$TMPDIR/plain" &&
		return
	cat "$TMPDIR/plain" "$TMPDIR/server"
	explain
	return 1
}

# Long enough for as many messages on a slow kernel.
seconds=$(((${RSMC_LESS:-1} + 2) / 3))

ktap_plan 12
for kind in plain smc; do
	c0=$(counted a client) s0=$(counted b server)
	n=0
	while read -r name to server each least client; do
		n=$((n + 1))
		port=$((5300 + n))
		case $server in
		recv) set -- --tcp -i "$to" -p $port ;;
		*) # A list of addresses makes it wait in select, poll or epoll.
			printf 'T:%s:%s\nT:%s:%s\n' "$to" $port "$to" $((port + 50)) >"$TMPDIR/feed"
			set -- -f "$TMPDIR/feed" -F "$server"
			;;
		esac
		run b $kind sockperf server "$@" >"$TMPDIR/server" 2>&1 &
		srv=$!
		up $port 5 || sed 's/^/# /' "$TMPDIR/server"
		for try in first second; do
			# shellcheck disable=SC2086
			run a $kind timeout "$(slow 20)" sockperf $client --tcp -i "$to" -p $port -t $seconds >"$TMPDIR/out" 2>&1
			# It sometimes waits for its first answer for ever, over plain TCP as well.
			grep -q 'No messages were sent' "$TMPDIR/out" || break
			echo "# $name.$kind: no answer to its first message, $try time"
		done
		check "$name.$kind" judge "$each" "$least"
		printf '%s\n' "$ktap_output" | sed 's/^/# /'
		pkill -P $srv
		wait $srv 2>/dev/null
	done <<END
ping_pong 10.77.0.2 recv 1 100 ping-pong -m 64 --data-integrity
large_messages 10.77.0.2 recv 1 10 ping-pong -m 60000 --data-integrity
epoll 10.77.0.2 e 1 100 ping-pong -m 200
poll 10.77.0.2 p 1 100 ping-pong -m 200
under_load 10.77.0.2 s 5 100 under-load -m 100 --mps $(less 2000) --reply-every 5
END
	proof sockperf $kind "$c0" "$s0" 5
done
ktap_exit
