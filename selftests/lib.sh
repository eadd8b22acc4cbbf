# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# For test scripts: . "$RSMC_SELFTESTS/lib.sh"
#
#   ktap_plan N           prints the header and the plan
#   ok NAME               a point that passed
#   not_ok NAME [WHY...]  a point that failed, with explanations
#   skip NAME WHY...      a point that could not be tested
#   check NAME COMMAND... runs a command; its status is the point's result
#   check_fails NAME COMMAND...   the same, expecting failure
#   is NAME ACTUAL EXPECTED       compares two texts
#   skip_all WHY...       ends the test: nothing of it can run here
#   ns a|b COMMAND...     runs a command in a namespace (netns), or plainly (pair)
#   barrier NAME          meets the other guest's program (pair)
#   slow N                N stretched by RSMC_SLOW, for timeouts
#   wait_for SECONDS COMMAND...   until the command succeeds, within SECONDS on a quiet machine
#   load_module           loads the module anew, and has SMC-R negotiated before data in all named namespaces, as the lab
#                         does for a test without `default_path`
#   ktap_exit             ends the test with the right status

ktap_number=0
ktap_failed=0
ktap_skipped=0
ktap_planned=

ktap_plan() {
	echo "KTAP version 1"
	echo "1..$1"
	ktap_planned=$1
}

ok() {
	ktap_number=$((ktap_number + 1))
	echo "ok $ktap_number - $1"
}

not_ok() {
	ktap_number=$((ktap_number + 1))
	ktap_failed=$((ktap_failed + 1))
	ktap_name=$1
	shift
	for why in "$@"; do
		printf '%s\n' "$why" | sed 's/^/# /'
	done
	echo "not ok $ktap_number - $ktap_name"
}

skip() {
	ktap_number=$((ktap_number + 1))
	ktap_skipped=$((ktap_skipped + 1))
	ktap_name=$1
	shift
	echo "ok $ktap_number - $ktap_name # SKIP $*"
}

skip_all() {
	echo "KTAP version 1"
	echo "1..0 # SKIP $*"
	exit 4
}

check() {
	ktap_name=$1
	shift
	if ktap_output=$("$@" 2>&1); then
		ok "$ktap_name"
	else
		not_ok "$ktap_name" "$* -> status $?" "$ktap_output"
	fi
}

check_fails() {
	ktap_name=$1
	shift
	if ktap_output=$("$@" 2>&1); then
		not_ok "$ktap_name" "$* succeeded" "$ktap_output"
	else
		ok "$ktap_name"
	fi
}

is() {
	if [ "$2" = "$3" ]; then
		ok "$1"
	else
		not_ok "$1" "got:      $2" "expected: $3"
	fi
}

ns() {
	ktap_ns=$1
	shift
	if [ "$RSMC_TOPO" = netns ]; then
		ip netns exec "$ktap_ns" "$@"
	else
		"$@"
	fi
}

barrier() {
	rsmc-barrier "$1" "$(slow "${2:-60}")"
}

slow() {
	echo $(($1 * ${RSMC_SLOW:-1}))
}

less() {
	echo $(($1 / ${RSMC_LESS:-1}))
}

wait_for() {
	# On a loaded one they may be five times as many.
	ktap_tries=$(($(slow "$1") * 10 * 5))
	shift
	while ! "$@" >/dev/null 2>&1; do
		ktap_tries=$((ktap_tries - 1))
		[ "$ktap_tries" -gt 0 ] || return 1
		sleep 0.1
	done
}

load_module() {
	insmod "$RSMC_KO" || return 1
	for ktap_ns in $(ip netns list | cut -d' ' -f1); do
		ip netns exec "$ktap_ns" sysctl -qw net.smc.path=1 || return 1
	done
}

ktap_exit() {
	if [ -z "$ktap_planned" ]; then
		echo "1..$ktap_number"
	elif [ "$ktap_number" != "$ktap_planned" ]; then
		echo "# planned $ktap_planned points, made $ktap_number"
		exit 1
	fi
	[ "$ktap_failed" = 0 ] || exit 1
	[ "$ktap_number" != "$ktap_skipped" ] || [ "$ktap_number" = 0 ] || exit 4
	exit 0
}
