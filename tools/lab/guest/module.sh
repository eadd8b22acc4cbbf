#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# module.sh load rsmc|smc|none | unload rsmc|smc|none
# Loads the module under test or the C implementation, and takes it out again.
# Unloading waits a moment: sockets of killed programs end in a workqueue.
set -eu
verb=$1 name=$2
ko=${RSMC_KO:-/rsmc/rsmc.ko}

loaded() { grep -q "^$1 " /proc/modules; }

dependencies() {
	for name in $(modinfo -F depends "$1" | tr ',' ' '); do
		modprobe "$name"
	done
}

# What dpkg has installed on the host, with its own notes of that.
install_packages() {
	tar -C / -xpf /rsmc/installed.tar
	dpkg -s rsmc-tools | grep -q '^Status: install ok installed$'
}

case "$verb $name" in
"load rsmc")
	if [ -e /rsmc/installed.tar ]; then
		[ -e /var/lib/dpkg/info/rsmc-tools.list ] || install_packages
		modprobe rsmc
		loaded rsmc
		exit
	fi
	if [ ! -e "$ko" ]; then
		echo "module.sh: there is no $ko" >&2
		exit 1
	fi
	# Programs that ask for the family get it loaded.
	mkdir -p /etc/modprobe.d
	{
		for alias in net-pf-43 net-pf-2-proto-256-type-1 net-pf-10-proto-256-type-1; do
			echo "alias $alias rsmc"
		done
		echo "install rsmc /sbin/insmod $ko"
	} >/etc/modprobe.d/rsmc.conf
	dependencies "$ko"
	insmod "$ko"
	loaded rsmc
	;;
"load smc")
	rm -f /etc/modprobe.d/rsmc.conf
	modprobe smc
	modprobe smc_diag
	loaded smc
	;;
"unload rsmc" | "unload smc")
	[ "$name" = rsmc ] || rmmod smc_diag 2>/dev/null || :
	tries=0
	while loaded "$name" && ! message=$(rmmod "$name" 2>&1); do
		tries=$((tries + 1))
		if [ "$tries" -gt 50 ]; then
			echo "module.sh: $name does not unload: $message" >&2
			grep "^$name " /proc/modules >&2
			cat /proc/net/protocols >&2
			exit 1
		fi
		sleep 0.2
	done
	if loaded "$name"; then exit 1; fi
	;;
*none) ;;
*)
	echo "usage: module.sh load|unload rsmc|smc|none" >&2
	exit 2
	;;
esac
