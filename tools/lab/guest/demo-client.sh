#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# demo-client.sh REQUESTS
# Guest a of `lab demo`: an unmodified redis-benchmark over SMC sockets, whose connections are listed as seen
# while it runs. The guests have soft-RoCE, over which connections would stay TCP by default. A last line `demo: ...` on standard error says why the demonstration has failed.
set -eu
requests=$1

if ! grep -q '^rsmc ' /proc/modules; then
	echo "demo: rsmc.ko is not loaded in guest a" >&2
	exit 1
fi
echo "\$ sysctl net.smc.path=1   # in both: SMC-R from the beginning. By default (2) it would stay TCP, as the device is software"
sysctl -qw net.smc.path=1
rsmc-barrier ready 120
rsmc ss --json --watch=0.5 >/tmp/seen &
watching=$!
set -- redis-benchmark -h 10.77.0.2 -t set,get -n "$requests" -c 10 -d 512
echo "\$ rsmc run -- $*"
rsmc run -- "$@" --csv
kill "$watching"
{ wait "$watching"; } 2>/dev/null || :
status=0
python3 -I -S /rsmc/lab/demo-seen.py /tmp/seen /proc/net/smc_fallback || status=$?
rsmc-barrier measured 600
exit "$status"
