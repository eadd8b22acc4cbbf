#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# profiles.sh PROFILE...: what a card of each kind does to the module. Connections carry bytes; the driver recovers the
# device under load, as drivers do: calls fail, nothing is executed, nobody is told; the module is unloaded meanwhile and
# loaded again; and when the device is well, connections are SMC-R again.
. "$RSMC_SELFTESTS/lib.sh"
. "$RSMC_SELFTESTS/trouble/common.sh"

loaded() { grep -q '^rsmc ' /proc/modules; }
trouble() { echo "$*" >/sys/module/card/parameters/trouble; }
smcr() { wait_for 10 timeout 20 stress --mode 0 --bulk 2 --short 10 at_once short bulk; }

devices() {
	ns a rdma link "$1" card_a ${2:+type card netdev va} && ns b rdma link "$1" card_b ${2:+type card netdev vb}
}

# resets PROFILE: the driver recovers one end's device while connections send.
resets() {
	serving "$TMPDIR/server" --mode 0
	holding "$TMPDIR/client" --mode 0
	if grep -q "all .* carry data" "$TMPDIR/client" && trouble card_a dead 1 && trouble card_a reset 1; then
		ok "$1.reset"
	else
		not_ok "$1.reset"
	fi
	ended "$1.client" "$client" "$TMPDIR/client" 30
	ended "$1.server" "$server" "$TMPDIR/server" 30
	# Sockets of programs that have ended hold the module for a moment.
	wait_for 10 sh -c '[ "$(cat /sys/module/rsmc/refcnt)" = 0 ]'
	rmmod rsmc &
	unloading=$!
	# In this shell, whose child it is.
	wait_for 20 over "$unloading"
	check_fails "$1.unloads" loaded
	loaded || load_module
	trouble card_a reset 0
	trouble card_a dead 0
	for end in a b; do
		ns "$end" sysctl -qw net.smc.smcr_testlink_time=2
	done
}

# A card on which memory cannot be registered is no card for us, and says so; connections are TCP's.
unfit() {
	check "$1.tcp" timeout 20 stress --mode 1 --short 10 at_once short
	ns a rsmc dev >"$TMPDIR/dev"
	check "$1.named" grep -q "card_a.*fast registration" "$TMPDIR/dev"
	sed 's/^/# /' "$TMPDIR/dev"
}

points=0
for profile; do
	[ "$profile" = mana ] && points=$((points + 3)) || points=$((points + 7))
done
ktap_plan "$points"
modprobe ib_core
for end in a b; do
	ns "$end" sysctl -qw net.smc.smcr_testlink_time=2
done
for profile; do
	insmod /rsmc/kmod/card.ko profile="$profile" || exit 1
	devices add type
	case $profile in
	mana) unfit "$profile" ;;
	*)
		check "$profile.smcr" smcr
		resets "$profile"
		check "$profile.smcr_again" smcr
		;;
	esac
	sed 's/^/# /' /sys/module/card/parameters/stats
	devices delete
	check "$profile.goes" rmmod card
done
ktap_exit
