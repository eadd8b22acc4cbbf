#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Redis's own tests, plainly and with SMC sockets (server, clients and the tests themselves); what ends differently has
# to be in redis-exclude.csv. Arguments: --convert --local, and the names of units, for instance unit/auth.
. "$RSMC_SELFTESTS/conformance/suite.sh"
need redis-server redis-cli redis-benchmark
FILES=/rsmc/suites/redis
[ -d $FILES/tests ] || skip_all "no tests of Redis here"

# They want to be in their source tree.
cd "$TMPDIR" || exit 1
cp -r $FILES/tests .
mkdir -p src tests/tmp
for name in server cli benchmark check-aof check-rdb sentinel; do
	ln -s "$(command -v redis-$name)" src/redis-$name
done
export LD_LIBRARY_PATH=$FILES/usr/lib/x86_64-linux-gnu TCL_LIBRARY=$FILES/usr/share/tcltk/tcl8.6

# one KIND OUT IDS-OR-UNITS...: an id is a unit, a colon, and the words of a test.
one() {
	one_kind=$1
	one_out=$2
	shift 2
	: >"$one_out"
	: >"$one_out.noise"
	one_ended=0
	one_units=$(parents "$@")
	for unit in $one_units; do
		run a "$one_kind" timeout "$(slow 200)" "$FILES/usr/bin/tclsh8.6" tests/test_helper.tcl --single "$unit" --clients 1 \
			>"$one_out.unit" 2>&1
		cat "$one_out.unit" >>"$one_out.noise"
		# Lines are `[ok]: words (12 ms)`; names come again with other numbers in them, and colours around them.
		sed 's/\x1b\[[0-9;]*m//g' "$one_out.unit" |
			awk -v unit="$unit" -F'\t' '
				match($0, /^\[(ok|err|exception|skip|ignore)\]: /) {
					how = substr($0, 2, RLENGTH - 4)
					name = substr($0, RLENGTH + 1)
					sub(/ \([0-9]+ ms\)$/, "", name)
					if (how != "ok" && how != "skip" && how != "ignore") { sub(/ (in tests|expected|\(context).*/, "", name); how = "fail" }
					if (how == "ignore") how = "skip"
					gsub(/[^A-Za-z0-9_.-]+/, "_", name)
					print unit ":" name "\t" how
				}' >>"$one_out"
		! grep -q 'All tests passed\|The following tests failed' "$one_out.unit" || one_ended=$((one_ended + 1))
	done
	[ $one_ended != "$(printf '%s\n' "$one_units" | wc -l)" ] || printf 'end\treached\n' >>"$one_out"
}

echo "KTAP version 1"
suite redis redis-exclude.csv "$@"
ktap_exit
