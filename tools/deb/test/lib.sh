# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# What the scripts for guests share.

release=$(uname -r)

fail() {
	echo "# $*"
	exit 1
}

# talk: a connection on this machine, until `rsmc ss` lists it as a path within the kernel.
talk() {
	"$@" socat -u TCP-LISTEN:7000,reuseaddr OPEN:/tmp/got,creat,trunc &
	server=$!
	for _ in $(seq 100); do
		ss -Hltn 'sport = :7000' | grep -q . && break
		sleep 0.1
	done
	rm -f /tmp/end
	(
		until [ -e /tmp/end ]; do
			echo "over there"
			sleep 0.2
		done
	) | "$@" socat -u - TCP:127.0.0.1:7000 &
	client=$!
	for _ in $(seq 100); do
		rsmc ss >/tmp/listed 2>&1 || :
		grep "127.0.0.1:7000" /tmp/listed | grep -q "SMC-D" && break
		sleep 0.2
	done
	: >/tmp/end
	wait "$client" "$server" || fail "the connection broke"
	[ "$(sort -u /tmp/got)" = "over there" ] || fail "other bytes arrived"
}
