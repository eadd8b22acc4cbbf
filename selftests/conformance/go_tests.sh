#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Go's own tests of its network library, plainly and with SMC sockets; what ends differently has to be in
# go-exclude.csv. Arguments: --convert --local, and of the packages: net, http.
. "$RSMC_SELFTESTS/conformance/suite.sh"
TESTS=/rsmc/suites/go
[ -x $TESTS/net.test ] || skip_all "no tests of Go here"
# Neither network nor name servers are here, nor is a compiler to be tested.
SKIP='^Test(Lookup|ResolverLookup|DialGoogle|ResolveGoogle|ConcurrentPreferGoResolversDial|InterfaceArrivalAndDeparture'
SKIP="$SKIP|OmitHTTP2|CmdGo)"

one() { # one KIND OUT [IDS]...: of $package
	one_kind=$1
	one_out=$2
	shift 2
	one_run=.
	[ $# = 0 ] || one_run="^($(printf '%s\n' "$@" | sed 's|/.*||' | sort -u | paste -sd'|'))\$"
	(
		cd "$package" &&
			run a "$one_kind" timeout "$(slow 300)" $TESTS/"$m".test -test.v -test.timeout 0 -test.run "$one_run" -test.skip "$SKIP"
	) >"$one_out.noise" 2>&1
	sed -n 's/^ *--- PASS: \([^ ]*\) (.*/\1\tok/p; s/^ *--- FAIL: \([^ ]*\) (.*/\1\tfail/p; s/^ *--- SKIP: \([^ ]*\) (.*/\1\tskip/p' \
		"$one_out.noise" >"$one_out"
	! grep -qxE 'PASS|FAIL' "$one_out.noise" || printf 'end\treached\n' >>"$one_out"
}

cd "$TMPDIR" || exit 1
# Its listeners ask for MPTCP.
ns a rsmc policy add allow mptcp "exe=$TESTS/*" || exit 1
# Raw sockets of protocol 47 load a module, which makes devices in the initial namespace, too.
trap 'modprobe -qr ip_gre' EXIT
echo "KTAP version 1"
for m; do
	package=/usr/lib/go-1.24/src/net
	[ "$m" = net ] || package=$package/$m
	suite "$m" go-exclude.csv
done
ktap_exit
