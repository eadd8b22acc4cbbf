#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# demo-local.sh REQUESTS counted|timed
# The one guest of `lab demo`: an unmodified Redis and its benchmark on one machine, by TCP, by AF_UNIX and by rsmc.
# `counted` says that a nanosecond of the guest's clock is an instruction.
# A last line `demo: ...` on standard error says why the demonstration has failed.
set -eu
requests=$1 clock=$2
dir=$(mktemp -d /tmp/demo.XXXXXX)
server=

die() {
	echo "demo: $*" >&2
	exit 1
}

counter() { # NAME
	awk -v name="$1" '$1 == name { print $2 }' /proc/net/smc_fallback
}

start() { # PREFIX...: a server, once it listens
	"$@" redis-server --bind 127.0.0.1 --port 6379 --unixsocket "$dir/socket" --save "" --appendonly no \
		--dir "$dir" >"$dir/log" 2>&1 &
	server=$!
	tries=0
	until grep -q "eady to accept connections" "$dir/log"; do
		tries=$((tries + 1))
		[ "$tries" -le 600 ] && kill -0 "$server" 2>/dev/null || die "redis-server does not start: $(tail -n 1 "$dir/log")"
		sleep 0.1
	done
}

stop() {
	kill "$server"
	wait "$server" || :
}

measure() { # CARRIER COMMAND...: its rate; a short run before it has read the programs
	carrier=$1
	shift
	for n in 200 "$requests"; do
		[ "$n" = 200 ] || [ "$carrier" != rsmc ] || look &
		"$@" -t set -c 20 -d 512 -n "$n" --csv >"$dir/out" 2>"$dir/err" || die "$carrier: $(tail -n 1 "$dir/err")"
	done
	rate=$(awk -F'","' '$1 == "\"SET" { print $2 }' "$dir/out")
	[ -n "$rate" ] || die "$carrier: redis-benchmark gave no rate"
	echo "$carrier $rate" >>"$dir/rates"
}

look() { # until all connections are there at a time, and have had a request
	tries=0
	until rsmc ss --json --dport 6379 | tr -d '\n' >"$dir/look" && [ "$(grep -o SMC-D "$dir/look" | wc -l)" -ge 20 ]; do
		tries=$((tries + 1))
		[ "$tries" -lt 100 ] || return 0
		sleep 0.02
	done
}

grep -q '^rsmc ' /proc/modules || die "rsmc.ko is not loaded"
echo "\$ redis-benchmark -t set -c 20 -d 512 -n $requests"
start
measure TCP redis-benchmark -h 127.0.0.1
measure AF_UNIX redis-benchmark -s "$dir/socket"
stop
[ "$(counter tcp_first_client)" = 0 ] || die "rsmc has had a hand in plain TCP"
start rsmc run --
measure rsmc rsmc run -- redis-benchmark -h 127.0.0.1
stop
wait

awk -v clock="$clock" '
	{ name[NR] = $1; rate[NR] = $2; if ($2 > most) most = $2 }
	END {
		printf "%-8s %10s  %s\n", "", "requests/s", clock == "counted" ? "instructions/request" : ""
		for (i = 1; i <= NR; i++) {
			bar = sprintf("%" int(44 * rate[i] / most + 0.5) "s", "")
			gsub(/ /, "#", bar)
			cost = clock == "counted" ? sprintf("%d", 1e9 / rate[i]) : ""
			printf "%-8s %10d  %20s  %s\n", name[i], rate[i], cost, bar
		}
		printf "rsmc is %.2f times TCP and %.2f times AF_UNIX.\n", rate[3] / rate[1], rate[3] / rate[2]
	}' "$dir/rates"
[ "$clock" != counted ] || echo "A second is 10^9 instructions of the guest's one processor: the figures repeat on any machine."
python3 -I -S /rsmc/lab/demo-seen.py "$dir/look" /proc/net/smc_fallback local
rm -rf "$dir"
