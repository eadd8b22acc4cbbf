#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# enter.sh SYSROOT PROGRAM [ARGUMENT...]
# Runs a program inside the sysroot. Expects to be started in a private mount
# namespace (unshare --mount), so nothing is left mounted afterwards. The
# checkout ($RSMC_TOP) and the cache ($RSMC_CACHE) appear at the paths they
# have outside, the sysroot itself is read-only, with the directory $RSMC_LAYER over
# it if there is one, and the host's name resolution and certificates are used.
set -eu
root=$1
shift
here=$(pwd -P)

for dir in "$RSMC_TOP" "$RSMC_CACHE"; do
	[ -d "$root$dir" ] || mkdir -p "$root$dir"
done
for file in resolv.conf hosts; do
	[ -e "$root/etc/$file" ] || : >"$root/etc/$file"
done
if [ "${RSMC_LAYER:-}" ]; then
	mount -t overlay overlay -o "lowerdir=$RSMC_LAYER:$root" "$root"
else
	mount --bind "$root" "$root"
fi
# Flags of the underlying mount cannot be changed without privileges.
mount -o remount,bind,ro "$root" 2>/dev/null || :
for dir in proc sys dev; do
	mount --rbind "/$dir" "$root/$dir"
done
for dir in tmp run root; do
	mount -t tmpfs tmpfs "$root/$dir"
done
for dir in "$RSMC_TOP" "$RSMC_CACHE"; do
	mkdir -p "$root$dir"
	mount --bind "$dir" "$root$dir"
done
for file in resolv.conf hosts; do
	[ ! -e "/etc/$file" ] || mount --bind "/etc/$file" "$root/etc/$file"
done
bundle=${RSMC_CA_BUNDLE:-${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}}
if [ -e "$bundle" ] && [ -e "$root/etc/ssl/certs/ca-certificates.crt" ]; then
	mount --bind "$bundle" "$root/etc/ssl/certs/ca-certificates.crt"
fi
[ -d "$root$here" ] || here=/
exec chroot "$root" /usr/bin/env -C "$here" "$@"
