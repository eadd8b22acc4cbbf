#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Guest b of `lab demo`: an unmodified redis-server over SMC sockets.
set -eu

if ! grep -q '^rsmc ' /proc/modules; then
	echo "demo: rsmc.ko is not loaded in guest b" >&2
	exit 1
fi
# As in guest a.
sysctl -qw net.smc.path=1
rsmc run -- redis-server --bind 10.77.0.2 --port 6379 --save "" --appendonly no \
	--protected-mode no --dir /tmp >/tmp/redis.log 2>&1 &
server=$!
tries=0
until grep -q "Ready to accept connections" /tmp/redis.log; do
	tries=$((tries + 1))
	if [ "$tries" -gt 300 ] || ! kill -0 "$server" 2>/dev/null; then
		cat /tmp/redis.log >&2
		echo "demo: redis-server does not start in guest b" >&2
		exit 1
	fi
	sleep 0.1
done
rsmc-barrier ready 120
rsmc-barrier measured 600
awk '$1 == "smc_connections" { smc = $2 } $1 == "fallback_server" { tcp = $2 }
	END { printf "the server has counted %d connections over SMC, %d that fell back to TCP\n", smc, tcp }' /proc/net/smc_fallback
kill "$server"
wait "$server" || :
