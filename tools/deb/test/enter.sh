#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# enter.sh DIRECTORY LOWER[:LOWER...] [--bind=FROM=TO] [--small=PATH=SIZE]... -- COMMAND...
# Runs a command in a Debian root made of layers, its changes in DIRECTORY/upper.
# Expects to be started in a private mount namespace.
set -eu
dir=$1 lower=$2
shift 2
root=$dir/root
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$dir/upper,workdir=$dir/work" "$root"
for name in proc sys dev; do mount --rbind "/$name" "$root/$name"; done
mount -t tmpfs tmpfs "$root/run"
cp /etc/resolv.conf /etc/hosts "$root/run"
for file in resolv.conf hosts; do
	[ -e "$root/etc/$file" ] || : >"$root/etc/$file"
	mount --bind "$root/run/$file" "$root/etc/$file"
done
while [ "$1" != -- ]; do
	pair=${1#*=}
	case $1 in
	--bind=*)
		mkdir -p "$root/run${pair#*=}"
		mount --bind "${pair%%=*}" "$root/run${pair#*=}"
		;;
	--small=*)
		mkdir -p "$root${pair%%=*}"
		mount -t tmpfs -o "size=${pair#*=}" tmpfs "$root${pair%%=*}"
		;;
	esac
	shift
done
shift
exec chroot "$root" "$@"
