# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# For the scripts here, after lib.sh: connections by `survivor`, and their end.
#
#   serving LOG [ARGUMENT...]   the server's end in namespace `b` (pair: here); its process is $server
#   holding LOG [ARGUMENT...]   the client's end in `a` (pair: here), once every connection carries data;
#                               its process is $client
#   ended NAME PROCESS LOG SECONDS   a point: all connections of PROCESS have ended with an error, in time

serving() {
	log=$1
	shift
	# What an earlier one said must not be taken for this one's.
	: >"$log"
	ns b survivor serve "$@" >"$log" 2>&1 &
	server=$!
	wait_for 10 grep -q listening "$log"
}

holding() {
	log=$1
	shift
	rm -f "$TMPDIR/ready"
	ns a survivor hold --to 10.77.0.2 --ready "$TMPDIR/ready" "$@" >"$log" 2>&1 &
	client=$!
	wait_for 20 test -e "$TMPDIR/ready" || sed 's/^/# /' "$log"
}

over() { ! kill -0 "$1" 2>/dev/null; }

ended() {
	if ! wait_for "$4" over "$2"; then
		not_ok "$1" "connections live after $4 s" "$(cat "$3")"
		# The shell's child and, below it, the program.
		pkill -9 -P "$2"
		kill -9 "$2" 2>/dev/null
		wait "$2" 2>/dev/null
		return 1
	fi
	if wait "$2"; then
		ok "$1"
	else
		not_ok "$1" "$(cat "$3")"
	fi
}
