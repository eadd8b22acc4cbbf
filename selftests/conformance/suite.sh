#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# Shared by the scripts that run other programs' own tests in namespace a, plainly and with SMC sockets. Such a script
# says how one run is made: one KIND OUT IDS... writes `id<TAB>outcome` lines to OUT, the last of them `end<TAB>reached`.
# A script whose tests wait more than they compute says PLAIN=b: the plain run is in namespace b then, beside the other.
. "$RSMC_SELFTESTS/conformance/common.sh"
HERE=$RSMC_SELFTESTS/conformance
PLAIN=a

# parents IDS...   what is before the first colon of each, once
parents() {
	printf '%s\n' "$@" | sed 's/:.*//' | sort -u
}

# among WORD WORDS: whether it is one of them
among() {
	case " $2 " in *" $1 "*) ;; *) return 1 ;; esac
}

# suite NAME EXCLUDE IDS...   the points same.NAME: the list of tests that end differently is empty but for those in
# EXCLUDE; and used_smc.NAME: only the second run had sockets of the family, and by a local path ends left TCP. A suite that
# UNCONNECTED names may have none. Of one that BRIEF names no end need have left TCP where carriers are changed: the first
# message of a direction then stays with TCP, and there is hardly another.
suite() {
	suite_name=$1
	suite_exclude=$HERE/$2
	shift 2
	suite_began=$(date +%s)
	suite_plain=$(counted "$PLAIN" server)
	suite_smc=$(counted a server)
	suite_moved=$(moved a)
	if [ "$PLAIN" = a ]; then
		one plain "$TMPDIR/plain" "$@"
		suite_plain=$(($(counted a server) - suite_plain))
		suite_smc=$((suite_smc + suite_plain))
		one smc "$TMPDIR/smc" "$@"
	else
		one plain "$TMPDIR/plain" "$@" &
		one smc "$TMPDIR/smc" "$@"
		wait $!
		suite_plain=$(($(counted "$PLAIN" server) - suite_plain))
	fi
	suite_smc=$(($(counted a server) - suite_smc))
	suite_moved=$(($(moved a) - suite_moved))
	echo "# $suite_name: $(($(date +%s) - suite_began)) s"
	# What differs is run again, alone, both ways, and what still differs once more: on a busy machine tests
	# with short timeouts fail by themselves now and then. Only what differs each time counts.
	for suite_look in second third; do
		python3 "$HERE/outcomes.py" "$TMPDIR/plain" "$TMPDIR/smc" $MODE "$suite_exclude" ids >"$TMPDIR/again"
		[ -s "$TMPDIR/again" ] && [ "$(wc -l <"$TMPDIR/again")" -lt 40 ] || break
		sed "s/^/# a $suite_look look at: /" "$TMPDIR/again"
		for suite_kind in plain smc; do
			# shellcheck disable=SC2046
			one $suite_kind "$TMPDIR/$suite_kind.$suite_look" $(cat "$TMPDIR/again")
			cut -f1 "$TMPDIR/$suite_kind.$suite_look" >"$TMPDIR/looked"
			awk -F'\t' 'NR == FNR { seen[$1]; next } !($1 in seen)' "$TMPDIR/looked" "$TMPDIR/$suite_kind" >"$TMPDIR/$suite_kind.rest"
			cat "$TMPDIR/$suite_kind.rest" "$TMPDIR/$suite_kind.$suite_look" >"$TMPDIR/$suite_kind"
		done
	done
	suite_failed=$ktap_failed
	check "same.$suite_name" python3 "$HERE/outcomes.py" "$TMPDIR/plain" "$TMPDIR/smc" $MODE "$suite_exclude"
	printf '%s\n' "$ktap_output" | sed 's/^/# /'
	[ "$ktap_failed" = "$suite_failed" ] || tail -n 60 "$TMPDIR"/smc*.noise | sed 's/^/# /'
	echo "# $suite_name: $suite_plain connections of the family plainly, $suite_smc $MODE" \
		"with SMC, of whose ends $suite_moved left TCP"
	if [ "$suite_plain" = 0 ] && [ "$suite_smc" -gt 0 ] &&
		{ [ $MODE != local ] || [ "$suite_moved" -gt 0 ]; }; then
		ok "used_smc.$suite_name"
	elif [ "$suite_plain" = 0 ] && [ "$suite_smc" = 0 ] && among "$suite_name" "${UNCONNECTED-}"; then
		skip "used_smc.$suite_name" "it makes no TCP connection"
	elif [ "$suite_plain" = 0 ] && [ "$suite_smc" -gt 0 ] && [ "$FLIP" != 0 ] &&
		among "$suite_name" "${BRIEF-}"; then
		skip "used_smc.$suite_name" "none of its connections left TCP: few write twice"
	else
		not_ok "used_smc.$suite_name"
	fi
}
