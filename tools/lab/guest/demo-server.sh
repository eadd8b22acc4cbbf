#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Guest b of `lab demo`: an unmodified redis-server over SMC sockets.
set -eu

prefix=
if command -v rsmc >/dev/null 2>&1; then prefix="rsmc run --"; fi

# shellcheck disable=SC2086
$prefix redis-server --bind 10.77.0.2 --port 6379 --save "" --appendonly no \
	--protected-mode no --dir /tmp >/tmp/redis.log 2>&1 &
server=$!
tries=0
until grep -q "Ready to accept connections" /tmp/redis.log; do
	tries=$((tries + 1))
	if [ "$tries" -gt 300 ] || ! kill -0 "$server" 2>/dev/null; then
		echo "redis-server does not start:" >&2
		cat /tmp/redis.log >&2
		exit 1
	fi
	sleep 0.1
done
rsmc-barrier ready 120
rsmc-barrier measured 600
if [ -n "$prefix" ]; then
	echo "server (guest b), rsmc ss:"
	rsmc ss | head -n 40
fi
rsmc-barrier shown 120
kill "$server"
wait "$server" || :
