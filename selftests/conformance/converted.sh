#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Programs that no library reaches, or that come without any change (static, set-user-ID, raw system calls, behind
# a filter of address families), over SMC-R by the sysctl tcp2smc alone; then they are TCP again. In one guest or two.
. "$RSMC_SELFTESTS/conformance/common.sh"
need busybox curl python3 rsync socat ss setpriv gcc

mkdir -p "$TMPDIR/www"
chmod 755 "$TMPDIR" "$TMPDIR/www"
seq 1000000 | head -c 500000 >"$TMPDIR/www/file"
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

trap served EXIT
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

ktap_plan "$(asks && echo 14 || echo 4)"
for kind in smc plain; do
	c0=$(counted a client) s0=$(counted b server)
	servers_all $kind
	barrier "serving.$kind" 120
	ask "static.$kind" fetched $kind busybox wget -q -O "$TMPDIR/got" http://10.77.0.2:9001/file
	ask "curl.$kind" fetched $kind curl -sS --max-time "$(slow 60)" -o "$TMPDIR/got" http://10.77.0.2:9002/file
	ask "rsync.$kind" fetched $kind rsync --port 9003 rsync://10.77.0.2/www/file "$TMPDIR/got"
	ask "raw_calls.$kind" raw $kind
	ask "unprivileged.$kind" fetched $kind setpriv --no-new-privs \
		curl -sS --max-time "$(slow 60)" -o "$TMPDIR/got" http://10.77.0.2:9006/file
	barrier "asked.$kind" 120
	proof converted $kind "$c0" "$s0" 5
	served
	check "gone.$kind" wait_for 10 closed :900
done
ktap_exit
