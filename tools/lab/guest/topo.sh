#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# topo.sh up private|netns|pair SIDE [PATH] | rdma netns | rdma pair | port netns | veth netns | card netns [PROFILE] |
#	down netns | down pair | device pair
# Namespaces, devices and addresses of the topologies (see selftests/README.md);
# `rdma` puts a soft-RoCE device on each end, `card` a model card (selftests/kmod/card). `port` joins the namespaces by
# Ethernet ports of such cards instead, `veth` by veth again. `up` and `down` print what tests must leave as it was.
# PATH is written into net.smc.path of the initial namespace, a and b, unless it is `default`: most tests are about
# SMC-R, which connections are to have from their beginning. `down` puts the initial namespace's back.
set -eu

# The one device of a pair's link: vec0 in UML, eth0 under QEMU.
link_device() {
	for dev in vec0 eth0; do
		[ ! -e "/sys/class/net/$dev" ] || { echo "$dev"; return; }
	done
	echo "topo.sh: no link device" >&2
	exit 1
}

addresses() { # DEVICE NUMBER
	cat <<-END
		addr add 10.77.0.$2/24 dev $1
		addr add fd77::$2/64 dev $1 nodad
		link set $1 up
	END
}

# QEMU's translator can run an instruction that another virtual CPU has just patched as it was in
# the midst of that, and the guest panics in an "Oops: int3". What tests patch most is the switch of
# receive time stamps, in the path of every packet: with a user of its own it stays as it is.
keep_time_stamps() {
	grep -qs QEMU /sys/class/dmi/id/sys_vendor || return 0
	ping -q -i 3600 127.0.0.1 >/dev/null 2>&1 </dev/null &
}

# va in a and vb in b have the usual addresses.
joined() {
	{ echo "link set lo up"; addresses va 1; } | ip -netns a -batch -
	{ echo "link set lo up"; addresses vb 2; } | ip -netns b -batch -
}

by_veth() {
	ip link add va netns a type veth peer name vb netns b
}

by_ports() {
	ip -netns a link add va type card
	ip -netns b link add vb type card
}

card_module() { # [PROFILE]
	[ ! -e /sys/module/card ] || return 0
	modprobe ib_core
	insmod /rsmc/kmod/card.ko engine=ring profile="${1:-ideal}"
}

no_rdma() {
	[ -e /sys/module/rdma_rxe ] || [ -e /sys/module/card ] || return 0
	rdma link show | sed -n 's/^link \([^/ ]*\).*/\1/p' | while read -r dev; do
		# That of a namespace which is ending goes by itself. And `rdma` looks a name up in a list of all, which
		# leaves one out when another goes meanwhile: ask again.
		for _ in 1 2 3 4 5; do
			said=$(rdma link delete "$dev" 2>&1) || [ ! -e "/sys/class/infiniband/$dev" ] && continue 2
			sleep 0.1
		done
		echo "$said" >&2
		exit 1
	done
	# That of a namespace which is ending may be in no list any more, and is still there.
	for _ in $(seq 50); do
		[ -n "$(ls /sys/class/infiniband 2>/dev/null)" ] || break
		sleep 0.1
	done
	[ ! -e /sys/module/card ] || rmmod card
}

# What every test of a boot finds, so that none depends on those before it: `up` says it before it does
# anything, `down` when all is done, and the lab compares.
state() {
	ls -d /sys/class/net/* /sys/class/infiniband/* /run/netns/* 2>/dev/null || :
	# Only if namespaces do not share the RDMA devices, for the module may come with the test.
	grep -s N /sys/module/ib_core/parameters/netns_mode /dev/null || :
	grep -rs . /proc/sys/net/smc /proc/sys/net/core /proc/sys/net/ipv4/tcp_* /proc/sys/net/ipv4/ip_* \
		/proc/sys/kernel/modprobe /proc/sys/kernel/dmesg_restrict | grep -v tcp_available || :
}

# Programs in two guests connect until the other one's listens, and may meet the moment in which it begins to, between
# a refused SYN and the one without the option. Namespaces that tests make have the default.
neighbours=/proc/sys/net/smc/neighbour_time
[ "$1 $2" != "up pair" ] || [ ! -e $neighbours ] || echo 0 >$neighbours

[ "$1" != up ] || state
path=/proc/sys/net/smc/path
kept=/run/rsmc-path
negotiate() { # COMMAND...: by which it is another namespace's
	case $wanted in
	[0-9]) [ ! -e $path ] || "$@" sh -c "echo $wanted >$path" ;;
	esac
}
wanted=${4:-default}
if [ "$1" = up ] && [ -e $path ]; then
	[ -e $kept ] || cat $path >$kept
	negotiate
fi
case "$1 $2" in
"up private")
	# A soft-RoCE device costs time and memory for every namespace there is, so there is none.
	ip link set lo up
	keep_time_stamps
	;;
"up netns")
	ip link set lo up
	# Both ends are made where they belong; b's dummies come first, so that
	# va and vb do not share an ifindex.
	ip -batch - <<-END
		netns add a
		netns add b
		link add dummy0 netns b type dummy
		link add dummy1 netns b type dummy
	END
	by_veth
	joined
	for ns in a b; do
		negotiate ip netns exec $ns
	done
	keep_time_stamps
	;;
"up pair")
	dev=$(link_device)
	ip addr flush dev "$dev"
	{
		echo "link set lo up"
		[ "$3" = a ] && addresses "$dev" 1 || addresses "$dev" 2
	} | ip -batch -
	keep_time_stamps
	;;
"rdma netns")
	modprobe rdma_rxe
	ip netns exec a rdma link add rxe_a type rxe netdev va
	ip netns exec b rdma link add rxe_b type rxe netdev vb
	;;
"rdma pair")
	modprobe rdma_rxe
	rdma link add rxe0 type rxe netdev "$(link_device)"
	;;
"port netns")
	card_module
	ip -netns a link delete va
	by_ports
	joined
	;;
"veth netns")
	ip -netns a link delete va
	ip -netns b link delete vb
	by_veth
	joined
	;;
"card netns")
	card_module "${3:-}"
	# In place of soft-RoCE, under the names by which tests know that.
	name=${3:+rxe}
	ip netns exec a rdma link add "${name:-card}_a" type card netdev va
	ip netns exec b rdma link add "${name:-card}_b" type card netdev vb
	;;
"down netns")
	no_rdma
	for ns in $(ip netns list | cut -d' ' -f1); do
		ip netns delete "$ns"
	done
	;;
"down pair")
	no_rdma
	ip addr flush dev "$(link_device)"
	;;
"device pair")
	link_device
	;;
*)
	echo "usage: topo.sh up|rdma|port|veth|card|down|device private|netns|pair [SIDE [PATH]]" >&2
	exit 2
	;;
esac
if [ "$1" = down ] && [ -e $kept ]; then
	[ ! -e $path ] || cat $kept >$path
	rm $kept
fi
[ "$1" != down ] || state
