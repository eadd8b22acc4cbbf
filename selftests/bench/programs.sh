#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# programs.sh plain|smc|first|smcd|local|unix [--loopback] [--scale N] [--only METRIC,...] [--mark]
# What requests of ordinary programs cost: lines `bench METRIC VALUE UNIT`, in nanoseconds of the guest's clock.
# The servers are in namespace b, the clients in a; with --loopback both are in a. With smc their sockets are of the family, and every
# connection of the clients has to have become SMC-R (with smcd SMC-D), by the counters of whichever module is loaded; with first every
# one has to have begun as TCP and been promoted to SMC-R, which eight segments are enough for; with local every
# one has to have begun as TCP, and gone through memory unless it was short. With unix Redis and PostgreSQL are asked by AF_UNIX, and
# nothing else is measured. PostgreSQL only if --only names it: to make its files takes most of the time.
set -eu
PATH=$PATH:/rsmc/bin:/usr/sbin:/sbin
kind=$1
shift
scale=1 only= mark=
server_in=b host=10.77.0.2
while [ $# -gt 0 ]; do
	case $1 in
	--scale) scale=$2 && shift ;;
	--only) only=$2 && shift ;;
	--mark) mark=1 ;;
	--loopback) server_in=a host=127.0.0.1 ;;
	esac
	shift
done
dir=$(mktemp -d /tmp/programs.XXXXXX)
server=
finish() {
	[ -z "$server" ] || kill "$server" 2>/dev/null || :
	wait
	rm -rf "$dir"
}
trap finish EXIT

die() {
	echo "programs.sh: $*" >&2
	exit 1
}

wants() { # PREFIX: whether a metric that begins so is wanted
	[ -n "$only" ] || return 0
	for one in $(echo "$only" | tr , ' '); do
		case $1 in "$one"*) return 0 ;; esac
		case $one in "$1"*) return 0 ;; esac
	done
	return 1
}

show() { # METRIC VALUE
	case $2 in '' | *[!0-9.]*) die "$1: no figure" ;; esac
	echo "bench $1 $2 ns"
}

run() { # [exec] a|b COMMAND...; a server is run by `run exec b ... &`, so that its number is the job's
	exec=
	[ "$1" != exec ] || { exec=exec && shift; }
	where=$1
	[ "$where" = a ] || where=$server_in
	shift
	case $kind in
	plain | unix) $exec ip netns exec "$where" "$@" ;;
	*) $exec ip netns exec "$where" rsmc run -- "$@" ;;
	esac
}

counts() { # [first] connections of the clients by the carrier that is wanted, and those that fell back
	if [ "$kind" = local ]; then
		# A client that writes once does so by TCP.
		ip netns exec a awk -v which="${1:-local}_client" '{ is[$1] = $2 }
			END { print is[which == "first_client" ? "tcp_first_client" : which], is["fallback_client"] }' /proc/net/smc_fallback
		return
	fi
	if [ "$kind" = first ]; then
		# A short connection stays TCP.
		ip netns exec a awk -v short="${1:-}" '$1 == "promotion_done" && $2 == "client" { done = $3 }
			{ is[$1] = $2 }
			END { print (short ? is["tcp_first_client"] : done) + 0, is["fallback_client"] + 0 }' /proc/net/smc_fallback
		return
	fi
	ip netns exec a rsmc stats --absolute --json | python3 -c 'import json, sys
it = json.load(sys.stdin)
by = it["smc_d" if sys.argv[1] == "smcd" else "smc_r"]
print(by["client_v1"] + by["client_v2"], it["fallback"]["client"])' "$kind"
}

prove() { # WHAT LEAST BEFORE [first]: at least LEAST connections more and none that fell back; plainly none at all
	now=$(counts "${4:-}")
	smc=$((${now% *} - ${3% *})) back=$((${now#* } - ${3#* }))
	echo "# $1: $smc connections by SMC ($kind), $back fallbacks" >&2
	case $kind in
	plain | unix) [ "$smc" = 0 ] && [ "$back" = 0 ] || die "$1 has used SMC" ;;
	*) [ "$smc" -ge "$2" ] && [ "$back" = 0 ] || die "$1 has not used SMC" ;;
	esac
}

up() { # PORT: until something listens there
	tries=0
	until ip netns exec $server_in ss -ltnH "sport = :$1" | grep -q .; do
		tries=$((tries + 1))
		[ $tries -lt 600 ] || die "nothing listens on port $1"
		sleep 0.1
	done
}

inverse() { # per second to nanoseconds
	awk -v rate="$1" 'BEGIN { if (rate > 0) printf "%.1f", 1e9 / rate }'
}

stop() { # PID
	kill "$1"
	wait "$1" || :
	server=
}

redis() {
	to="-h $host -p 6400"
	[ "$kind" != unix ] || to="-s $dir/socket"
	run exec b redis-server --bind $host --port 6400 --unixsocket "$dir/socket" --protected-mode no --save '' --appendonly no --dir "$dir" >"$dir/log" 2>&1 &
	server=$!
	up 6400
	for clients in 1 20; do
		[ -z "$mark" ] || break
		wants "redis_set_$clients" || wants "redis_get_$clients" || continue
		before=$(counts)
		run a redis-benchmark $to -c $clients -n $((5000 / scale)) -t set,get --csv >"$dir/out" 2>"$dir/err" ||
			die "redis-benchmark: $(cat "$dir/err")"
		prove "redis-benchmark -c $clients" $((2 * clients)) "$before"
		for test in SET GET; do
			rate=$(awk -F'","' -v t="\"$test" '$1 == t { print $2 }' "$dir/out")
			show "redis_$(echo $test | tr SETG setg)_$clients" "$(inverse "$rate")"
		done
	done
	for load in 1 20 64 512 20_P16; do
		[ -z "$mark" ] || [ "$only" != "redis_set_$load" ] || redis_marked $load
	done
	stop "$server"
}

# Of SET, for the profiler. What redis-benchmark does to begin and to end is in both
# parts: the second less the first is requests alone. A run before them, unmarked, has read the files.
redis_marked() { # CLIENTS[_PPIPELINED]
	clients=${1%_P*} deep=1
	[ "$1" = "$clients" ] || deep=${1#*_P}
	for part in warm less of; do
		n=$((5000 * deep * (1 + clients / 100) / scale))
		# A promotion takes its time.
		[ "$kind" != first ] || n=$((n * 4))
		[ $part = of ] || n=$((n / 5))
		before=$(counts)
		[ $part = warm ] || bench mark
		run a redis-benchmark $to -c $clients -P $deep -n $n -t set --csv >"$dir/out" 2>"$dir/err" ||
			die "redis-benchmark: $(cat "$dir/err")"
		[ $part = warm ] || bench mark
		prove "redis-benchmark -c $clients -P $deep -n $n" "$clients" "$before"
		[ $part = warm ] || echo "# profile $part $n operations"
	done
}

# Requests to nginx for the given seconds; a third argument puts the profiler's marks around them.
# wrk counts whole seconds, each 1e9 instructions, of which the profiler's guest executes a few million in
# a second: a signal ends it earlier.
nginx_requests() { # keep|close SECONDS [mark]
	short= ended= seconds=$2
	case $2 in *.*) ended="timeout --preserve-status -s INT $2" seconds=60 ;; esac
	[ "$1" = keep ] || short=first
	before=$(counts $short)
	header="X-Way: $1"
	[ "$1" = keep ] || header='Connection: close'
	[ -z "${3:-}" ] || bench mark
	run a $ended wrk -d "${seconds}s" -t 1 -c 8 --timeout 10s -H "$header" http://$host:8080/small >"$dir/out" 2>&1 || die "wrk: $(cat "$dir/out")"
	[ -z "${3:-}" ] || bench mark
	! grep 'Socket errors\|Non-2xx' "$dir/out" >&2 || die "wrk: requests failed"
	prove "wrk, $1" 8 "$before" $short
}

# For the profiler, as for Redis.
nginx_marked() { # keep|close
	nginx_requests "$1" 0.1
	for part in less of; do
		[ $part = less ] || long=0.5
		[ $part = of ] || long=0.1
		nginx_requests "$1" $long mark
		echo "# profile $part $(awk '$2 == "requests" { print $1 }' "$dir/out") operations"
	done
}

nginx_wrk() {
	mkdir -p "$dir/www" "$dir/tmp"
	chmod 755 "$dir" "$dir/www"
	head -c 100 /dev/zero >"$dir/www/small"
	cat >"$dir/nginx.conf" <<-END
		daemon off;
		worker_processes 1;
		user root;
		pid $dir/nginx.pid;
		error_log $dir/error.log;
		events { worker_connections 256; }
		http {
			access_log off;
			sendfile on;
			keepalive_requests 1000000;
			client_body_temp_path $dir/tmp/body;
			proxy_temp_path $dir/tmp/proxy;
			fastcgi_temp_path $dir/tmp/f;
			uwsgi_temp_path $dir/tmp/u;
			scgi_temp_path $dir/tmp/s;
			server { listen 8080; root $dir/www; }
		}
	END
	run exec b nginx -p "$dir" -c "$dir/nginx.conf" >"$dir/log" 2>&1 &
	server=$!
	up 8080
	for way in keep close; do
		wants "nginx_$way" || continue
		if [ -n "$mark" ]; then
			nginx_marked $way
			continue
		fi
		nginx_requests $way 1
		show "nginx_$way" "$(inverse "$(awk '$1 == "Requests/sec:" { print $2 }' "$dir/out")")"
	done
	stop "$server"
}

iperf_once() { # nanoseconds a KiB
	run exec b iperf3 -s -1 -p 5300 >"$dir/log" 2>&1 &
	server=$!
	up 5300
	before=$(counts)
	# By time: with an amount it only looks once in a while whether that is done.
	run a iperf3 -J -p 5300 -c $host -t 1 >"$dir/out" 2>"$dir/err" || die "iperf3: $(cat "$dir/out" "$dir/err")"
	prove iperf3 2 "$before"
	python3 -c 'import json, sys
it = json.load(open(sys.argv[1]))["end"]["sum_received"]
print("%.1f" % (it["seconds"] * 1e9 / (it["bytes"] / 1024)))' "$dir/out" >>"$dir/each"
	wait "$server" || :
	server=
}

remember() { # 0|1: whether TCP takes up what it has learned from earlier connections
	for ns in a b; do
		ip netns exec $ns sh -c "echo $((1 - $1)) >/proc/sys/net/ipv4/tcp_no_metrics_save"
	done
}

# One TCP connection in three costs an eighth more; those after one may take that up, so each begins
# anew. No median is sure of its mode: the cheapest counts. SMC has no such modes.
iperf() {
	rounds=9
	[ "$scale $kind" = "1 plain" ] || rounds=1
	remember 0
	for round in $(seq $rounds); do
		iperf_once
	done
	remember 1
	echo "# iperf3: $(xargs <"$dir/each")" >&2
	show iperf3_per_KiB "$(sort -n "$dir/each" | head -n 1)"
}

# SELECTs of four clients.
pgbench_select() {
	[ -z "$mark" ] || die "there are no marks for the profiler around pgbench"
	bin=$(echo /usr/lib/postgresql/*/bin)
	as="setpriv --reuid=postgres --regid=postgres --clear-groups"
	to="-h $host -p 9012 -U postgres"
	[ "$kind" != unix ] || to="-h $dir/pg -p 9012 -U postgres"
	mkdir "$dir/pg"
	chmod 755 "$dir"
	chown postgres "$dir/pg"
	$as "$bin/initdb" -D "$dir/pg/data" -A trust -N --no-instructions >"$dir/log" 2>&1 || die "initdb: $(tail -n 3 "$dir/log")"
	printf 'fsync = off\nautovacuum = off\n' >>"$dir/pg/data/postgresql.conf"
	run exec b $as "$bin/postgres" -D "$dir/pg/data" -h $host -p 9012 -k "$dir/pg" >"$dir/log" 2>&1 &
	server=$!
	up 9012
	run a "$bin/pgbench" $to -q -i -s 1 postgres >"$dir/out" 2>&1 || die "pgbench -i: $(tail -n 3 "$dir/out")"
	before=$(counts)
	run a "$bin/pgbench" $to -n -c 4 -j 1 -t $((500 / scale)) -S -M prepared postgres >"$dir/out" 2>&1 ||
		die "pgbench: $(tail -n 3 "$dir/out")"
	prove pgbench 4 "$before"
	show pgbench_select "$(inverse "$(awk '$1 == "tps" { print $3 }' "$dir/out")")"
	stop "$server"
}

path=0 # SMC-R, not a path of the module's that avoids it
[ "$kind" != local ] || path=1
if [ "$kind" = first ]; then
	path=2
	for ns in a b; do
		ip netns exec $ns sysctl -qw net.smc.path_promote=8 net.smc.path_software=1
	done
fi
for ns in a b; do
	ip netns exec $ns sh -c "[ ! -e /proc/sys/net/smc/path ] || echo $path >/proc/sys/net/smc/path"
done
ip -n a link set lo up
if [ "$kind" != unix ]; then
	! wants iperf3_per_KiB || iperf
	! wants nginx_ || nginx_wrk
fi
! wants redis_ || redis
[ -z "$only" ] || ! wants pgbench_ || pgbench_select
