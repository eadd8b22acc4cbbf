#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Programs that no library reaches, or that come without any change (static, set-user-ID, raw system calls, behind
# a filter of address families), over SMC-R by the sysctl tcp2smc alone; then they are TCP again.
. "$RSMC_SELFTESTS/conformance/common.sh"
need busybox curl python3 rsync socat ss setpriv gcc

mkdir -p "$TMPDIR/www"
chmod 755 "$TMPDIR" "$TMPDIR/www"
head -c 500000 /dev/urandom >"$TMPDIR/www/file"
cat >"$TMPDIR/rsyncd.conf" <<END
[www]
	path = $TMPDIR/www
	use chroot = no
	uid = root
END
# A client that calls the kernel itself, without a C library.
cat >"$TMPDIR/raw.c" <<'END'
static long call(long n, long a, long b, long c)
{
	long r;
	__asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
	return r;
}
void _start(void)
{
	static const unsigned char to[16] = { 2, 0, 0x23, 0x2d, 10, 77, 0, 2 };
	static char text[64];
	long s = call(41, 2, 1, 0), n = -1;
	if (s >= 0 && call(42, s, (long)to, 16) == 0 && call(1, s, (long)"raw\n", 4) == 4)
		n = call(0, s, (long)text, sizeof(text));
	if (n > 0)
		call(1, 1, (long)text, n);
	call(60, n != 4, 0, 0);
}
END
gcc -nostdlib -static -O1 -fno-stack-protector -o "$TMPDIR/raw" "$TMPDIR/raw.c"

# All processes of the servers' namespace are servers.
stop() {
	ip netns pids b | xargs -r kill 2>/dev/null
}
trap stop EXIT
serve() { # KIND PORT COMMAND...: in the background, until it listens
	serve_kind=$1
	serve_port=$2
	shift 2
	run b "$serve_kind" "$@" >"$TMPDIR/server" 2>&1 &
	up "$serve_port"
}
same() {
	cmp "$1" "$TMPDIR/www/file"
}
fetched() { # KIND COMMAND...: which writes the file to $TMPDIR/got
	fetched_kind=$1
	shift
	rm -rf "$TMPDIR/got"
	run a "$fetched_kind" "$@" && same "$TMPDIR/got"
}
raw() {
	[ "$(run a "$1" "$TMPDIR/raw")" = raw ]
}

servers_all() { # KIND
	serve "$1" 9001 busybox httpd -f -p 9001 -h "$TMPDIR/www"
	serve "$1" 9002 python3 -m http.server --directory "$TMPDIR/www" 9002
	serve "$1" 9003 rsync --daemon --no-detach --port 9003 --config "$TMPDIR/rsyncd.conf"
	serve "$1" 9005 socat TCP-LISTEN:9005,fork,reuseaddr EXEC:cat
	# As a service with RestrictAddressFamilies=AF_INET and NoNewPrivileges, and not root.
	serve "$1" 9006 setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs \
		busybox httpd -f -p 9006 -h "$TMPDIR/www"
}

ktap_plan 14
for kind in smc plain; do
	c0=$(counted a client) s0=$(counted b server)
	servers_all $kind
	check "static.$kind" fetched $kind busybox wget -q -O "$TMPDIR/got" http://10.77.0.2:9001/file
	check "curl.$kind" fetched $kind curl -sS --max-time "$(slow 60)" -o "$TMPDIR/got" http://10.77.0.2:9002/file
	check "rsync.$kind" fetched $kind rsync --port 9003 rsync://10.77.0.2/www/file "$TMPDIR/got"
	check "raw_calls.$kind" raw $kind
	check "unprivileged.$kind" fetched $kind setpriv --no-new-privs \
		curl -sS --max-time "$(slow 60)" -o "$TMPDIR/got" http://10.77.0.2:9006/file
	proof converted $kind "$c0" "$s0" 5
	stop
	check "gone.$kind" wait_for 10 sh -c '! ip netns exec b ss -ltnH | grep -q :900'
done
ktap_exit
