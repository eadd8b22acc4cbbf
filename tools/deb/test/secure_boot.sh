#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# secure_boot.sh refused|enrolled PASSWORD
# The module that DKMS built and signed, in a guest with Secure Boot: refused while the
# firmware does not know the key, loaded once it does. Both begin with the same files.
set -eu
. /rsmc/test/lib.sh
module=/lib/modules/$release/updates/dkms/rsmc.ko
key=/var/lib/dkms/mok.pub

ip link set lo up
mount -t securityfs none /sys/kernel/security
modprobe efivarfs
mount -t efivarfs none /sys/firmware/efi/efivars
dpkg -i /rsmc/mokutil/*.deb /rsmc/debs/rsmc-tools_*.deb >/tmp/log 2>&1 || fail "$(tail -n 5 /tmp/log)"

# Nobody asked for a lockdown: it follows from the firmware's word.
mokutil --sb-state | grep -qx "SecureBoot enabled" || fail "$(mokutil --sb-state 2>&1)"
grep -q lockdown /proc/cmdline && fail "the command line locks down: $(cat /proc/cmdline)"
grep -q '\[integrity\]' /sys/kernel/security/lockdown || fail "no lockdown: $(cat /sys/kernel/security/lockdown)"

install -D -m 644 /rsmc/dkms/mok.pub "$key"
install -D -m 644 /rsmc/dkms/rsmc.ko "$module"
depmod
[ "$(modinfo -F signer rsmc)" = "DKMS module signing key" ] || fail "not signed: $(modinfo rsmc)"
grep -q '\.debug_info' "$module" && fail "not stripped"

# refuses FILE WHAT: the kernel does not load it, for its signature.
refuses() {
	if insmod "$1" 2>/tmp/err; then fail "loaded $2"; fi
	grep -q "Key was rejected by service" /tmp/err || fail "$2: $(cat /tmp/err)"
	echo "# $2: $(sed 's/.*: //' /tmp/err)"
}

case $1 in
refused)
	mokutil --test-key "$key" | grep -q "is not enrolled" || fail "$(mokutil --test-key "$key" 2>&1)"
	refuses "$module" "DKMS's module"
	if modprobe rsmc 2>/tmp/err; then fail "modprobe loaded it"; fi
	if rsmc ss 2>/tmp/err; then fail "rsmc ss works without a module"; fi
	line=$(sed -n 's/.*: \(mokutil --import [^ ,]*\), restart and confirm the key.*/\1/p' /tmp/err)
	[ "$line" = "mokutil --import $key" ] || fail "no such line: $(cat /tmp/err)"
	echo "# $(cat /tmp/err)"
	# What it says is done as it says.
	printf '%s\n%s\n' "$2" "$2" | $line >/tmp/log 2>&1 || fail "$line: $(cat /tmp/log)"
	mokutil --list-new | grep -q "CN=DKMS module signing key" || fail "$(mokutil --list-new 2>&1)"
	;;
enrolled)
	mokutil --test-key "$key" | grep -q "is already enrolled" || fail "$(mokutil --test-key "$key" 2>&1)"
	# Only the one with that signature.
	dpkg-deb -x "$(ls "/rsmc/debs/rsmc-modules-${release}"_*.deb)" /tmp/unsigned
	modprobe -a ib_core
	refuses "/tmp/unsigned/usr/lib/modules/$release/updates/rsmc.ko" "a module without a signature"
	sed 's/license=GPL/license=GPX/' "$module" >/tmp/other.ko
	cmp -s "$module" /tmp/other.ko && fail "nothing was changed"
	refuses /tmp/other.ko "a module that was changed"
	talk rsmc run --
	grep "127.0.0.1:7000" /tmp/listed | head -n 2 | sed 's/^/# rsmc run: /'
	grep -q "^rsmc " /proc/modules || fail "no socket loaded the module"
	;;
esac
