#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# closing.sh [--local|--smc|--convert] [CONNECTIONS [SECONDS [ROUNDS]]]
# wrk with `Connection: close`: as many connections at a time as told, each for one request of nginx, plainly and with
# SMC sockets by turns. No request fails. Prints the rates, which are no verdict: what else the machine does moves them
# more than the module; performance.md has the cost of such a request in instructions (`nginx_close`).
# Fallback and SMC-R between the two namespaces; --local within one.
# With a clock that counts instructions (`lab boot --count 2`) 1e9 divided by a rate are the instructions that both
# processors execute for a request.
. "$RSMC_SELFTESTS/conformance/common.sh"
need nginx wrk ss
connections=${1-500}
seconds=$((${2-3} * ${RSMC_LESS:-1}))
rounds=${3-2}
server=b host=10.77.0.2
# So many at a time may find a queue full, and are TCP then, as they would be without strict mode.
STRICT=
[ $MODE != local ] || server=a host=127.0.0.1

nginx_conf "worker_processes 1; worker_rlimit_nofile 65000; events { worker_connections 30000; }" <<END
	server { listen 8080 backlog=16384; root $TMPDIR/www; }
END
head -c 100 /dev/urandom >"$TMPDIR/www/small"
ulimit -n 65000
for ns in a b; do
	ns $ns sysctl -qw net.core.somaxconn=16384 net.ipv4.tcp_max_syn_backlog=16384 net.ipv4.ip_local_port_range="1024 65000"
	# The receive buffers of all of them are there at the same time.
	ns $ns sysctl -qw net.smc.rmem=16384 net.smc.wmem=16384
	ip -n $ns link set lo up
done

count() { # connections of the client's by the wanted carrier, and those that fell back or were refused
	echo "$(counted a client) $(($(counter a fallback_client) + $(counter a strict_refused)))"
}

# crossings   since the boot: context switches, interrupts that one processor sends another (a user-mode kernel has
# none), softirqs for received packets, and packets on loopback
crossings() {
	awk '
		FILENAME ~ /stat$/ && $1 == "ctxt" { switches = $2 }
		FILENAME ~ /interrupts$/ && $1 ~ /^(RES|CAL|TLB):$/ { for (i = 2; i <= NF && $i ~ /^[0-9]+$/; i++) ipis += $i }
		FILENAME ~ /softirqs$/ && $1 == "NET_RX:" { for (i = 2; i <= NF; i++) softirqs += $i }
		END { printf "%d %d %d", switches, ipis, softirqs }' /proc/stat /proc/interrupts /proc/softirqs
	echo " $(ns $server cat /sys/class/net/lo/statistics/rx_packets)"
}

# round KIND: adds to the kind's requests, errors and microseconds
round() {
	run $server "$1" nginx -p "$TMPDIR" -c "$TMPDIR/nginx.conf" >"$TMPDIR/log" 2>&1 &
	round_pid=$!
	wait_for 20 sh -c "ip netns exec $server ss -ltnH 'sport = :8080' | grep -q ." || sed 's/^/# /' "$TMPDIR/log" "$TMPDIR/error.log"
	was=$(crossings)
	run a "$1" wrk -d ${seconds}s -t 1 --timeout 30s -c "$connections" -H 'Connection: close' http://$host:8080/small >"$TMPDIR/wrk" 2>&1
	is=$(crossings)
	kill "$(cat "$TMPDIR/nginx.pid")"
	wait $round_pid 2>/dev/null
	# "N requests in 3.01s", and if there are: "Socket errors: connect N, read N, write N, timeout N", "Non-2xx ...: N"
	sed 's/,//g' "$TMPDIR/wrk" | awk -v kind="$1" '
		/requests in/ { n = $1; t = $4; s = t + 0; if (t ~ /[0-9]m$/) s *= 60; if (t ~ /ms$/) s /= 1000 }
		/Socket errors:/ { e += $4 + $6 + $8 + $10 }
		/Non-2xx/ { e += $NF }
		END { printf "%s %.0f %.0f %.0f\n", kind, n, e, s * 1000000 }' >>"$TMPDIR/rounds"
	if grep -q 'requests in' "$TMPDIR/wrk"; then
		sed "s/^/# $1: /" "$TMPDIR/wrk" | grep 'requests in\|errors\|Non-2xx'
		tail -n 1 "$TMPDIR/rounds" | awk -v was="$was" -v is="$is" '{
			split(was, w); split(is, n); r = $2 ? $2 : 1
			printf "# %s: a request: %.2f context switches, %.3f interrupts between processors, %.2f softirqs for packets, %.2f packets\n",
				$1, (n[1] - w[1]) / r, (n[2] - w[2]) / r, (n[3] - w[3]) / r, (n[4] - w[4]) / r
		}'
	else
		sed "s/^/# $1: /" "$TMPDIR/wrk" "$TMPDIR/log" "$TMPDIR/error.log" | tail -n 20
		echo "$1: wrk has failed" >>"$TMPDIR/failed"
	fi
}

sum() { # KIND COLUMN
	awk -v kind="$1" -v column="$2" '$1 == kind { n += $column } END { printf "%.0f", n }' "$TMPDIR/rounds"
}

ktap_plan 4
for turn in $(seq "$rounds"); do
	echo "# turn $turn"
	before=$(count)
	round plain
	[ "$(count)" = "$before" ] || echo "# plain programs have used SMC" >>"$TMPDIR/wrong"
	round smc
done
now=$(count)
check errors.plain test "$(sum plain 3)" = 0
check errors.smc test "$(sum smc 3)" = 0 -a ! -e "$TMPDIR/failed"
check used_tcp test ! -e "$TMPDIR/wrong"
# Each of wrk's connections is one of the wanted kind; in the last ones no byte may have moved.
grown=$((${now% *} - ${before% *})) fell=$((${now#* } - ${before#* }))
echo "# $grown connections of the wanted kind and $fell others in the last turn"
case $MODE in
local) few=0 ;;
smc) few=$((grown / 10)) ;;
*) few=$fell ;;
esac
rate() { # KIND: requests a second; 0 without a result
	awk -v kind="$1" '$1 == kind { n += $2; t += $4 } END { printf "%.0f", t ? n * 1000000 / t : 0 }' "$TMPDIR/rounds"
}
plain=$(rate plain) smc=$(rate smc)
echo "# $connections connections: TCP $plain requests a second, $MODE $smc: $((smc * 1000 / (plain + !plain))) per mille"
check used_smc test $grown -ge "$connections" -a $fell -le $few
ktap_exit
