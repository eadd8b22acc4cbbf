#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# CPython's own tests of sockets, plainly and with SMC sockets; the list of tests that end differently must be
# empty but for cpython-exclude.csv. Arguments: [--smc | --local [--flip N]] modules of the package `test`. With --smc
# loopback has an RDMA device and connections that would fall back fail; with --local they are paths within the kernel.
. "$RSMC_SELFTESTS/conformance/common.sh"
case ${1-} in --smc | --local) shift ;; esac
[ "${1-}" != --flip ] || shift 2
need python3
HERE=$RSMC_SELFTESTS/conformance
# A kernel on which Python takes minutes per module gets those that come closest to the sockets.
[ "${RSMC_LESS:-1}" -lt 10 ] || set -- test_socket test_epoll test_asyncio.test_sock_lowlevel
[ $# -gt 0 ] || set -- test_socket test_epoll test_socketserver test_asyncio.test_sock_lowlevel \
	test_asyncio.test_sendfile test_asyncio.test_streams test_asyncio.test_server test_asyncio.test_events \
	test_asyncio.test_buffered_proto test_asyncio.test_ssl
python3 -c 'import test.test_socket' 2>/dev/null || skip_all "no libpython3-testsuite here"
[ $MODE != smc ] || ns a rdma link add rxe_lo type rxe netdev lo || exit 1

one() { # one KIND OUT IDS-OR-MODULES...
	one_kind=$1
	one_out=$2
	shift 2
	run a "$one_kind" timeout "$(slow 300)" python3 "$HERE/pyrun.py" "$one_out" "$@" >"$one_out.noise" 2>&1
}

cd "$TMPDIR" || exit 1
echo "KTAP version 1"
for m; do
	before=$(counted a server)
	one plain "$TMPDIR/plain" "test.$m"
	middle=$(counted a server)
	one smc "$TMPDIR/smc" "test.$m"
	after=$(counted a server)
	# What differs is run again, alone, both ways, and what still differs once more: on a busy machine tests
	# with short timeouts fail by themselves now and then. Only what differs each time counts.
	for look in second third; do
		python3 "$HERE/pydiff.py" "$TMPDIR/plain" "$TMPDIR/smc" $MODE "$HERE/cpython-exclude.csv" ids >"$TMPDIR/again"
		[ -s "$TMPDIR/again" ] && [ "$(wc -l <"$TMPDIR/again")" -lt 40 ] || break
		sed "s/^/# a $look look at: /" "$TMPDIR/again"
		for k in plain smc; do
			# shellcheck disable=SC2046
			one $k "$TMPDIR/$k.$look" $(cat "$TMPDIR/again")
			grep -vFf "$TMPDIR/again" "$TMPDIR/$k" >"$TMPDIR/$k.rest"
			cat "$TMPDIR/$k.rest" "$TMPDIR/$k.$look" >"$TMPDIR/$k"
		done
	done
	check "same.$m" python3 "$HERE/pydiff.py" "$TMPDIR/plain" "$TMPDIR/smc" $MODE "$HERE/cpython-exclude.csv"
	printf '%s\n' "$ktap_output" | sed 's/^/# /'
	sed -n 's/^slow: /# slow: /p' "$TMPDIR/smc.noise"
	left=$(sed -n 's/^left out: //p' "$TMPDIR/smc.noise" | paste -sd';')
	[ -z "$left" ] || skip "left_out.$m" "$left"
	[ "$ktap_failed" = 0 ] || tail -n 60 "$TMPDIR"/smc*.noise | sed 's/^/# /'
	echo "# $m: $((middle - before)) connections of the family plainly, $((after - middle)) $MODE under rsmc run"
	if [ "$middle" = "$before" ] && [ "$after" -gt "$middle" ]; then
		ok "used_smc.$m"
	else
		not_ok "used_smc.$m"
	fi
done
ktap_exit
