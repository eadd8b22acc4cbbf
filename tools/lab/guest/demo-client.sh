#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# demo-client.sh REQUESTS
# Guest a of `lab demo`: an unmodified redis-benchmark over SMC sockets. A
# second client keeps its connections open while both sides are looked at.
set -eu
requests=$1

prefix=
if command -v rsmc >/dev/null 2>&1; then prefix="rsmc run --"; fi

rsmc-barrier ready 120
echo "\$ $prefix redis-benchmark -h 10.77.0.2 -t set,get -n $requests -c 20 -d 512"
# shellcheck disable=SC2086
$prefix redis-benchmark -h 10.77.0.2 -t set,get -n "$requests" -c 20 -d 512 --csv

# Three connections that stay, to be shown.
holders=
for _ in 1 2 3; do
	# shellcheck disable=SC2086
	$prefix redis-cli -h 10.77.0.2 subscribe demo >/dev/null 2>&1 &
	holders="$holders $!"
done
sleep 2
if [ -n "$prefix" ]; then
	echo "client (guest a), rsmc ss:"
	rsmc ss | head -n 40
	if [ -r /proc/net/smc_fallback ]; then
		echo "client (guest a), /proc/net/smc_fallback:"
		cat /proc/net/smc_fallback
	fi
fi
rsmc-barrier measured 600
rsmc-barrier shown 120
# shellcheck disable=SC2086
kill $holders
