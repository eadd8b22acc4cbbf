#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# nginx (forked workers, epoll, sendfile, deferred accept, SO_REUSEPORT) with wrk and curl: files arrive to the
# byte, and no request fails.
. "$RSMC_SELFTESTS/conformance/common.sh"
need nginx wrk curl ss

nginx_conf "master_process on; worker_processes 2; events { worker_connections 512; }" <<END
	sendfile on;
	tcp_nopush on;
	keepalive_requests 50;
	server {
		listen 8080 deferred reuseport;
		listen [::]:8080 ipv6only=on reuseport;
		root $TMPDIR/www;
		location /proxy/ { proxy_pass http://10.77.0.2:8080/; proxy_buffering off; }
	}
END
head -c 100 /dev/urandom >"$TMPDIR/www/small"
head -c 5000000 /dev/urandom >"$TMPDIR/www/large"

fetch() { # fetch KIND URL FILE
	run a "$1" curl -sS --max-time "$(slow 30)" "$2" | cmp - "$TMPDIR/www/$3"
}

load() { # load KIND CONNECTIONS ARGUMENTS...: no failed request, and at least one for each connection
	load_kind=$1
	load_count=$2
	shift 2
	for load_seconds in 2 10 30; do # the machine may be slow or loaded
		run a "$load_kind" wrk -d ${load_seconds}s -t 2 --timeout 30s -c "$load_count" "$@" >"$TMPDIR/wrk" 2>&1 || return 1
		cat "$TMPDIR/wrk"
		! grep -q 'Socket errors\|Non-2xx' "$TMPDIR/wrk" || return 1
		awk -v least="$load_count" '/requests in/ { n = $1 } END { exit !(n >= least) }' "$TMPDIR/wrk" && return
	done
	return 1
}

ktap_plan 16
for kind in plain smc; do
	c0=$(counted a client) s0=$(counted b server)
	run b $kind nginx -p "$TMPDIR" -c "$TMPDIR/nginx.conf" >"$TMPDIR/log" 2>&1 &
	srv=$!
	up 8080 || sed 's/^/# /' "$TMPDIR/log" "$TMPDIR/error.log"
	check "small.$kind" fetch $kind http://10.77.0.2:8080/small small
	check "large.$kind" fetch $kind http://10.77.0.2:8080/large large
	check "ipv6.$kind" fetch $kind "http://[fd77::2]:8080/large" large
	check "proxied.$kind" fetch $kind http://10.77.0.2:8080/proxy/large large
	check "load_small.$kind" load $kind 20 http://10.77.0.2:8080/small
	check "load_large.$kind" load $kind 4 http://10.77.0.2:8080/large
	check "load_closing.$kind" load $kind 8 -H 'Connection: close' http://10.77.0.2:8080/small
	proof nginx $kind "$c0" "$s0" 30
	kill "$(cat "$TMPDIR/nginx.pid")"
	wait $srv 2>/dev/null
done
ktap_exit
