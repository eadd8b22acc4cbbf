#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# checks.sh lockdep | leaks-clear | leaks-scan
# Asks the debug kernels. Exit 0: fine, 1: not (said on stderr), 4: this kernel
# cannot tell.
set -u
leaks=/sys/kernel/debug/kmemleak

case "$1" in
lockdep)
	[ -e /proc/lockdep_stats ] || exit 4
	if ! grep -Eq 'debug_locks: +1' /proc/lockdep_stats; then
		echo "lockdep has switched itself off" >&2
		exit 1
	fi
	;;
leaks-clear)
	[ -e "$leaks" ] || exit 4
	roots=/rsmc/lab/leakroots
	# shellcheck disable=SC2046
	[ ! -e $roots.ko ] || /sbin/insmod $roots.ko $(cat $roots.args) || exit 1
	# Boot-time objects count as seen once a scan has listed them.
	echo scan >"$leaks" && echo clear >"$leaks"
	;;
leaks-scan)
	[ -e "$leaks" ] || exit 4
	# Objects younger than five seconds are never reported, and what was on
	# its way out at the first scan is gone at the second.
	sleep 6
	echo scan >"$leaks"
	sleep 1
	echo scan >"$leaks"
	report=$(head -c 65536 "$leaks")
	[ -z "$report" ] && exit 0
	printf '%s\n' "$report" >&2
	exit 1
	;;
*)
	echo "usage: checks.sh lockdep|leaks-clear|leaks-scan" >&2
	exit 2
	;;
esac
