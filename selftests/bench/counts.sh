#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# counts.sh [ROUNDS]: what a request over model cards causes on two processors: interrupts, doorbells, completions and
# context switches, of both ends together, for TCP over the cards' Ethernet ports, C and rsmc over their RDMA. In one
# boot, by turns, with 1, 16 and 64 requests of 64 bytes in flight, and as many clients of Redis:
#
#   tools/bootstrap boot --kernel bench --count 2 --module rsmc --kmod card --timeout 1800 -- \
#	/rsmc/selftests/bench/counts.sh
#
# With --count the clock counts instructions; else timers that moderate interrupts are early where the guest is slow.
# Without the C module in the kernel (Debian's) it leaves C out. The median of the rounds is shown, with the smallest and
# the largest.
set -eu
PATH=$PATH:/rsmc/bin
rounds=${1:-3}
raw=$(mktemp)
trap 'rm -f "$raw"' EXIT
lab=/rsmc/lab

ways="tcp smc_ours"
! modinfo smc >/dev/null 2>&1 || ways="tcp smc_c smc_ours"

note() { # WAY LOAD REQUESTS NAME NUMBER...
	echo "$*" >>"$raw"
}

# redis WAY CLIENTS
redis() {
	run=
	[ "$1" = tcp ] || run="rsmc run --"
	# shellcheck disable=SC2086
	ip netns exec b $run redis-server --bind 10.77.0.2 --port 6400 --protected-mode no --save '' --appendonly no --dir /tmp >/dev/null 2>&1 &
	server=$!
	until ip netns exec b ss -ltnH "sport = :6400" | grep -q .; do sleep 0.1; done
	requests=10000
	# The first run has read the files.
	for n in 500 $requests; do
		before=$(bench counts)
		# shellcheck disable=SC2086
		ip netns exec a $run redis-benchmark -h 10.77.0.2 -p 6400 -c "$2" -n $n -t set --csv >/dev/null
		after=$(bench counts)
	done
	# shellcheck disable=SC2086,SC2046
	note "$1" "redis_$2" $requests $(echo "$before $after" | awk '{
		for (i = 1; i <= NF / 2; i += 2) printf " %s %d", $i, $(i + NF / 2 + 1) - $(i + 1) }')
	kill $server
	wait $server || :
}

# measure WAY
measure() {
	ends="inet --mode 0"
	[ "$1" != tcp ] || ends=tcp
	# shellcheck disable=SC2086
	bench $ends --processes --only flight | while read -r word metric rest; do
		# shellcheck disable=SC2086
		[ "$word" != counts ] || note "$1" "$metric" $rest
	done
	for clients in 1 16 64; do
		redis "$1" $clients
	done
}

$lab/topo.sh port netns
$lab/topo.sh card netns
loaded=rsmc
for round in $(seq "$rounds"); do
	for way in $ways; do
		wanted=rsmc
		[ "$way" != smc_c ] || wanted=smc
		if [ "$wanted" != "$loaded" ]; then
			$lab/module.sh unload $loaded >/dev/null
			$lab/module.sh load $wanted >/dev/null
			loaded=$wanted
			# Without an id of its own the C module does not find itself in another namespace.
			[ $wanted != smc ] || rsmc ueid add RSMC-DEFAULT
		fi
		# SMC-R from the beginning, of Redis, too.
		for ns in a b; do
			[ $wanted = smc ] || ip netns exec $ns sysctl -qw net.smc.path=0
		done
		echo "# round $round: $way" >&2
		measure $way
	done
done
[ "$loaded" = rsmc ] || { $lab/module.sh unload $loaded && $lab/module.sh load rsmc; } >/dev/null

awk '{
	for (i = 4; i < NF; i += 2) {
		key = $2 " " $1
		if (!(key in seen)) { seen[key] = 1; order[++keys] = key }
		all[key, $i] = all[key, $i] " " $(i + 1) / $3
	}
}
function told(text,    n, v, i, j, t) {
	n = split(text, v, " ")
	for (i = 2; i <= n; i++)
		for (j = i; j > 1 && v[j] + 0 < v[j - 1] + 0; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
	return sprintf("%.2f (%.2f-%.2f)", v[int((n + 1) / 2)], v[1], v[n])
}
END {
	printf "%-14s %-9s %18s %18s %18s %18s\n", "a request", "", "interrupts", "doorbells", "completions", "switches"
	for (k = 1; k <= keys; k++) {
		split(order[k], w, " ")
		printf "%-14s %-9s %18s %18s %18s %18s\n", w[1], w[2], told(all[order[k], "interrupts"]),
			told(all[order[k], "doorbells"]), told(all[order[k], "completions"]), told(all[order[k], "switches"])
	}
}' "$raw"
