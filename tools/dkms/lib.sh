# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# Functions of the programs here, which set `kernel`, its release.

cache=/var/cache/rsmc-dkms
state=/run/rsmc-dkms

say() {
	echo "rsmc-dkms: $kernel: $*" >&2
}

# fail LINE: what is missing, and its cure; kept for whoever comes next.
fail() {
	say "no module: $*"
	if mkdir -p "$state" 2>/dev/null; then echo "$*" >"$state/$kernel.reason"; fi
	exit 77
}

# explain LOG: the usual outside causes of a failure in one line; none if it is another.
explain() {
	if grep -q "No space left on device" "$1"; then
		echo "the disk is full; free $needed_mb MB at $place, then: rsmc-dkms"
	elif grep -qE "Temporary failure resolving|Could not (resolve|connect)|Network is unreachable|Connection timed out|Unable to connect" "$1"; then
		echo "no network to fetch $package $version; once there is one: rsmc-dkms"
	elif grep -qE "Unable to locate package|was not found|Can't find a source" "$1"; then
		echo "apt knows no $package $version; add the suite that the kernel is from to apt's sources, then: apt update && rsmc-dkms"
	elif grep -qE "Killed|signal: 9|Terminated|SIGKILL|SIGTERM" "$1"; then
		echo "the build was killed (out of memory?); try again: rsmc-dkms"
	else
		return 1
	fi
}

# step WHAT COMMAND...: runs a command with its output in the log, and says every
# fifteen seconds that it lives. A failure ends all, with one line.
step() {
	what=$1
	shift
	say "$what"
	begun=$(wc -c <"$log")
	"$@" >>"$log" 2>&1 </dev/null &
	child=$!
	trap 'kill "$child" 2>/dev/null; clean; fail "$what was interrupted; try again: rsmc-dkms"' INT TERM HUP
	seconds=0
	while kill -0 "$child" 2>/dev/null; do
		sleep 0.5
		seconds=$((seconds + 1))
		[ $((seconds % 30)) != 0 ] || say "$what: $((seconds / 2)) s"
	done
	status=0
	wait "$child" || status=$?
	trap - INT TERM HUP
	[ "$status" != 0 ] || return 0
	part=$(mktemp)
	tail -c "+$((begun + 1))" "$log" >"$part"
	if [ "$status" -gt 128 ]; then
		why="$what was killed by signal $((status - 128)); try again: rsmc-dkms"
	else
		why=$(explain "$part") || why=$(sed -n 's/^metadata: //p' "$part" | tail -n 1)
		[ -n "$why" ] || why="$what failed ($(grep -m 1 -iE 'error|\*\*\*' "$part" | cut -c1-160)); the log: $log"
	fi
	rm -f "$part"
	clean
	fail "$why"
}
