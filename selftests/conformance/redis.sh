#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# redis-server with redis-benchmark and redis-cli: every command of the benchmark answers, pipelined too,
# and values come back to the byte.
. "$RSMC_SELFTESTS/conformance/common.sh"
need redis-server redis-benchmark redis-cli ss

bench() { # bench KIND FLAGS...: the names of the tests that gave a rate
	bench_kind=$1
	shift
	run a "$bench_kind" timeout "$(slow 120)" redis-benchmark -h 10.77.0.2 -p 6400 --csv "$@" 2>"$TMPDIR/err" |
		awk -F'","' 'NR > 1 && $2 + 0 > 0 { gsub(/"/, "", $1); print $1 }'
}

values() { # values KIND: random values of several sizes, written and read back
	for n in 1 100 70000 3000000; do
		head -c $n /dev/urandom | base64 -w0 >"$TMPDIR/v"
		run a "$1" redis-cli -h 10.77.0.2 -p 6400 -x set key <"$TMPDIR/v" >/dev/null || return 1
		run a "$1" redis-cli -h 10.77.0.2 -p 6400 get key | head -c -1 | cmp - "$TMPDIR/v" || return 1
	done
}

# Requests of each command: a kernel under an emulator gets a quarter.
requests=$(less 400)
[ "$requests" -ge 100 ] || requests=100
ktap_plan 9
for kind in plain smc; do
	c0=$(counted a client) s0=$(counted b server)
	run b $kind redis-server --bind 0.0.0.0 :: --port 6400 --protected-mode no --save '' --dir "$TMPDIR" >"$TMPDIR/log" 2>&1 &
	srv=$!
	up 6400
	bench $kind -n "$requests" -c 20 -d 512 >"$TMPDIR/plain_list.$kind"
	bench $kind -n "$((5 * requests))" -c 20 -P 16 -t set,get,incr,lpush,lrange_100,mset >"$TMPDIR/pipe_list.$kind"
	check "many_commands.$kind" test "$(wc -l <"$TMPDIR/plain_list.$kind")" -ge 15
	check "pipelined.$kind" test "$(wc -l <"$TMPDIR/pipe_list.$kind")" -ge 5
	check "values.$kind" values $kind
	proof redis $kind "$c0" "$s0" 40
	run a plain redis-cli -h 10.77.0.2 -p 6400 shutdown nosave >/dev/null 2>&1
	wait $srv 2>/dev/null
done
check same_commands cmp "$TMPDIR/plain_list.plain" "$TMPDIR/plain_list.smc"
ktap_exit
