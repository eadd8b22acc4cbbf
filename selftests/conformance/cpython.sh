#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# CPython's own tests of sockets, plainly and with SMC sockets; what ends differently has to be in cpython-exclude.csv.
# Arguments: [--convert] [--smc | --local [--flip N]] modules of the package `test`. With --smc loopback has an RDMA
# device and connections that would fall back fail; with --local they are paths within the kernel. With --convert it is
# the sysctl that makes them SMC sockets.
. "$RSMC_SELFTESTS/conformance/suite.sh"
need python3
# A kernel on which Python takes minutes per module gets those that come closest to the sockets.
[ "${RSMC_LESS:-1}" -lt 10 ] || set -- test_socket test_epoll test_asyncio.test_sock_lowlevel
[ $# -gt 0 ] || set -- test_socket test_epoll test_socketserver test_asyncio.test_sock_lowlevel \
	test_asyncio.test_sendfile test_asyncio.test_streams test_asyncio.test_server test_asyncio.test_buffered_proto \
	test_asyncio.test_ssl
python3 -c 'import test.test_socket' 2>/dev/null || skip_all "no libpython3-testsuite here"
[ $MODE != smc ] || ns a rdma link add rxe_lo type rxe netdev lo || exit 1

one() { # one KIND OUT IDS-OR-MODULES...
	one_kind=$1
	one_out=$2
	shift 2
	one_ns=a
	[ "$one_kind" = smc ] || one_ns=$PLAIN
	run "$one_ns" "$one_kind" timeout "$(slow 500)" python3 "$HERE/pyrun.py" "$one_out" "$@" >"$one_out.noise" 2>&1
}

# They wait for their own timers, most of the time.
PLAIN=b
# Pipes and pairs of AF_UNIX.
UNCONNECTED="test_select test_selectors test_poll"
BRIEF="test_epoll test_socketserver"
cd "$TMPDIR" || exit 1
echo "KTAP version 1"
for m; do
	suite "$m" cpython-exclude.csv "test.$m"
	sed -n 's/^slow: /# slow: /p' "$TMPDIR/smc.noise"
	left=$(sed -n 's/^left out: //p' "$TMPDIR/smc.noise" | paste -sd';')
	[ -z "$left" ] || skip "left_out.$m" "$left"
done
ktap_exit
