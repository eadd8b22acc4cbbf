#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# test.sh "NEEDS..." PROGRAM [ARGUMENT...]
# Starts one test: a missing program or module becomes a skip with its reason,
# and the test gets a scratch directory of its own.
set -eu
needs=$1
shift

for need in $needs; do
	if ! command -v "$need" >/dev/null 2>&1 && ! modinfo "$need" >/dev/null 2>&1 &&
		[ ! -e "/sys/module/$need" ]; then
		echo "KTAP version 1"
		echo "1..0 # SKIP needs $need, which this guest lacks"
		exit 4
	fi
done
if [ ! -x "$1" ]; then
	echo "test.sh: $1 is not there or not executable" >&2
	exit 127
fi
TMPDIR=$(mktemp -d /tmp/test.XXXXXX)
export TMPDIR
cd "$TMPDIR"
status=0
"$@" || status=$?
cd /
rm -rf "$TMPDIR"
exit "$status"
