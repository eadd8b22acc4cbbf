#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# Shared by the scripts here. RUN is the prefix that turns a command's sockets into SMC ones, or empty.
. "$RSMC_SELFTESTS/lib.sh"
PATH=$PATH:/usr/sbin:/sbin
FAMILY=${RSMC_TEST_FAMILY:-inet}

need() {
	for p; do
		command -v "$p" >/dev/null || skip_all "no $p here"
	done
}

# run a|b plain|smc COMMAND...   in a namespace, plainly or with SMC sockets
run() {
	run_ns=$1
	run_kind=$2
	shift 2
	if [ "$run_kind" = smc ]; then
		ns "$run_ns" rsmc run --family "$FAMILY" --strict -- "$@"
	else
		ns "$run_ns" "$@"
	fi
}

# counted a|b client|server   fallbacks counted in a namespace
counted() {
	ns "$1" awk -v k="fallback_$2" '$1 == k { print $2; f = 1 } END { if (!f) print 0 }' /proc/net/smc_fallback
}

# proof NAME KIND BEFORE_CLIENT BEFORE_SERVER AT_LEAST: with SMC at least so many new connections on
# each side; plainly none at all.
proof() {
	proof_c=$(($(counted a client) - $3))
	proof_s=$(($(counted b server) - $4))
	echo "# $1 $2: $proof_c client and $proof_s server connections of the family"
	if [ "$2" = smc ]; then
		[ $proof_c -ge "$5" ] && [ $proof_s -ge "$5" ] && ok "$1.used_smc" ||
			not_ok "$1.used_smc" "wanted at least $5 on each side"
	else
		[ $proof_c = 0 ] && [ $proof_s = 0 ] && ok "$1.used_tcp" || not_ok "$1.used_tcp" "wanted none"
	fi
}

# up PORT [SECONDS]: something listens on PORT in b
up() {
	wait_for "${2:-20}" sh -c "ip netns exec b ss -ltnH 'sport = :$1' | grep -q ."
}
