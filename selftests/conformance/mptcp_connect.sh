#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# mptcp_connect, the kernel's own tester of streams, with TCP sockets: both ends send a file at once or one after the
# other, by poll, mmap, sendfile and splice, with peeks, small buffers, time stamps and an early end. Files arrive to the byte.
# A client that disconnects its socket and connects it again waits until ss shows the first connection no more.
. "$RSMC_SELFTESTS/conformance/common.sh"
need mptcp_connect ss

head -c "$(less 1500007)" /dev/urandom >"$TMPDIR/of_client"
head -c "$(less 1200011)" /dev/urandom >"$TMPDIR/of_server"
cat "$TMPDIR/of_client" "$TMPDIR/of_client" "$TMPDIR/of_client" >"$TMPDIR/of_client.thrice"
cat "$TMPDIR/of_server" "$TMPDIR/of_server" "$TMPDIR/of_server" >"$TMPDIR/of_server.thrice"
CUT=40000

# prefix PART WHOLE: PART is how WHOLE begins
prefix() {
	head -c "$(wc -c <"$1")" "$2" | cmp - "$1"
}

# judge NAME CLIENT SERVER: statuses of the ends, and what each got
judge() {
	cat "$TMPDIR/client.err" "$TMPDIR/server.err"
	[ "$2" = 0 ] && [ "$3" = 0 ] || {
		echo "client ended with $2, server with $3"
		return 1
	}
	case $1 in
	cut_*)
		[ "$(wc -c <"$TMPDIR/to_client")" = $CUT ] && prefix "$TMPDIR/to_client" "$TMPDIR/of_server" &&
			[ -s "$TMPDIR/to_server" ] && prefix "$TMPDIR/to_server" "$TMPDIR/of_client"
		;;
	again_*)
		cmp "$TMPDIR/of_server.thrice" "$TMPDIR/to_client" && cmp "$TMPDIR/of_client.thrice" "$TMPDIR/to_server"
		;;
	*) cmp "$TMPDIR/of_server" "$TMPDIR/to_client" && cmp "$TMPDIR/of_client" "$TMPDIR/to_server" ;;
	esac
}

# name, address, flags of the client, flags of the server; a dash for none, commas for blanks
cat >"$TMPDIR/list" <<END
poll_v4 10.77.0.2 - -
poll_v6 fd77::2 - -
mmap_v4 10.77.0.2 -m,mmap -m,mmap
mmap_v6 fd77::2 -m,mmap -m,mmap
sendfile_v4 10.77.0.2 -m,sendfile -m,sendfile
sendfile_v6 fd77::2 -m,sendfile -m,sendfile
splice_v4 10.77.0.2 -m,splice -m,splice
peeked_v4 10.77.0.2 -P,saveWithPeek -P,saveWithPeek
peeked_v6 fd77::2 -P,saveWithPeek -P,saveWithPeek
after_peek_v4 10.77.0.2 -P,saveAfterPeek -P,saveAfterPeek
after_peek_mmap_v6 fd77::2 -P,saveAfterPeek,-m,mmap -P,saveAfterPeek,-m,mmap
small_v4 10.77.0.2 -S,4096,-R,4096 -S,4096,-R,4096
small_sendfile_v6 fd77::2 -S,4096,-R,4096,-m,sendfile -S,4096,-R,4096,-m,sendfile
cut_v4 10.77.0.2 -f,$CUT -f,-1
cut_v6 fd77::2 -f,$CUT -f,-1
stamps_v4 10.77.0.2 -c,TIMESTAMPNS -c,TIMESTAMPNS
stamps_mmap_v6 fd77::2 -c,TIMESTAMPNS,-m,mmap -c,TIMESTAMPNS,-m,mmap
END
cat >"$TMPDIR/again" <<END
again_v4 10.77.0.2 -I,3,-i,$TMPDIR/of_client -I,3,-i,$TMPDIR/of_server
again_v6 fd77::2 -I,3,-i,$TMPDIR/of_client -I,3,-i,$TMPDIR/of_server
END
each=$(wc -l <"$TMPDIR/list")

port=12000
# transfers FILE: those of a list
transfers() {
	while read -r name to client server; do
		port=$((port + 1))
		case $to in
		*:*) any=:: ;;
		*) any=0.0.0.0 ;;
		esac
		client=$(echo "${client#-}" | tr , ' ')
		server=$(echo "${server#-}" | tr , ' ')
		# The flags lost their first dash with the one that stands for none.
		# shellcheck disable=SC2086
		run b $kind timeout "$(slow 20)" mptcp_connect -t "$(slow 10)" -l -p $port -s TCP ${server:+-$server} $any \
			<"$TMPDIR/of_server" >"$TMPDIR/to_server" 2>"$TMPDIR/server.err" &
		srv=$!
		up $port 5 || sed 's/^/# /' "$TMPDIR/server.err"
		# shellcheck disable=SC2086
		run a $kind timeout "$(slow 20)" mptcp_connect -t "$(slow 10)" -p $port -s TCP ${client:+-$client} $to \
			<"$TMPDIR/of_client" >"$TMPDIR/to_client" 2>"$TMPDIR/client.err"
		cli_status=$?
		wait $srv
		srv_status=$?
		check "$name.$kind" judge "$name" $cli_status $srv_status
	done <"$1"
}

ktap_plan $((2 * each + 8))
strict=$STRICT
for kind in plain smc; do
	c0=$(counted a client) s0=$(counted b server)
	transfers "$TMPDIR/list"
	proof mptcp_connect $kind "$c0" "$s0" "$each"
	# A socket that has left SMC connects by TCP, so not in strict mode; the first connection of each is of the family.
	c0=$(counted a client)
	STRICT=
	transfers "$TMPDIR/again"
	STRICT=$strict
	is "again.first.$kind" $(($(counted a client) - c0)) "$([ $kind = smc ] && echo 2 || echo 0)"
done
ktap_exit
