#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# CPython's own socket tests, plainly and with SMC sockets; the list of tests that end differently must be
# empty but for cpython-exclude.csv. Arguments: modules of the package `test`.
. "$RSMC_SELFTESTS/conformance/common.sh"
need python3
HERE=$RSMC_SELFTESTS/conformance
[ $# -gt 0 ] || set -- test_socket test_selectors test_epoll test_poll test_socketserver \
	test_asyncio.test_sock_lowlevel test_asyncio.test_sendfile
python3 -c 'import test.test_socket' 2>/dev/null || skip_all "no libpython3-testsuite here"

one() { # one KIND OUT IDS-OR-MODULES...
	one_kind=$1
	one_out=$2
	shift 2
	if [ "$one_kind" = smc ]; then
		# shellcheck disable=SC2086
		set -- rsmc run --family "$FAMILY" $STRICT -- python3 "$HERE/pyrun.py" "$one_out" "$@"
	else
		set -- python3 "$HERE/pyrun.py" "$one_out" "$@"
	fi
	timeout "$(slow 400)" "$@" >"$TMPDIR/noise" 2>&1
}

connections() { awk '$1 == "smc_connections" { print $2 }' /proc/net/smc_fallback; }

cd "$TMPDIR" || exit 1
ktap_plan $(($# * 2))
for m; do
	before=$(connections)
	one plain "$TMPDIR/plain" "test.$m"
	middle=$(connections)
	one smc "$TMPDIR/smc" "test.$m"
	after=$(connections)
	# What differs is run again, alone, both ways: only what differs again counts.
	python3 "$HERE/pydiff.py" "$TMPDIR/plain" "$TMPDIR/smc" "$HERE/cpython-exclude.csv" ids >"$TMPDIR/again"
	if [ -s "$TMPDIR/again" ]; then
		sed 's/^/# differed at first: /' "$TMPDIR/again"
		# shellcheck disable=SC2046
		one plain "$TMPDIR/plain2" $(cat "$TMPDIR/again")
		# shellcheck disable=SC2046
		one smc "$TMPDIR/smc2" $(cat "$TMPDIR/again")
		for k in plain smc; do
			grep -vFf "$TMPDIR/again" "$TMPDIR/$k" >"$TMPDIR/$k.3"
			cat "$TMPDIR/$k.3" "$TMPDIR/${k}2" >"$TMPDIR/$k"
		done
	fi
	check "same.$m" python3 "$HERE/pydiff.py" "$TMPDIR/plain" "$TMPDIR/smc" "$HERE/cpython-exclude.csv"
	printf '%s\n' "$ktap_output" | sed 's/^/# /'
	echo "# $m: $((${middle:-0} - ${before:-0})) connections of the family plainly, $((${after:-0} - ${middle:-0})) under rsmc run"
	if [ "${middle:-0}" = "${before:-0}" ] && [ "${after:-0}" -gt "${middle:-0}" ]; then
		ok "used_smc.$m"
	else
		not_ok "used_smc.$m"
	fi
done
ktap_exit
