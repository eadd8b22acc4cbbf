#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Devices that cannot carry SMC-R, as `verb_fault` makes them: that is found out when the module learns of
# them, `rsmc dev` says so, and a connection is TCP as without a device, before anything is asked of it.
# And one that is strict, which can.
. "$RSMC_SELFTESTS/lib.sh"

[ -e /rsmc/kmod/verb_fault.ko ] || skip_all "the lab did not build verb_fault.ko"

parameter() { cat "/sys/module/verb_fault/parameters/$1"; }

renew() {
	for end in a b; do
		ns "$end" rdma link delete "rxe_$end"
		ns "$end" rdma link add "rxe_$end" type rxe netdev "v$end"
	done
}

# The module learns of devices as they are now.
reload() { wait_for 10 rmmod rsmc && load_module; }

# reason: why a connection fell back, or 0x0 for SMC-R.
reason() { timeout "$(slow 20)" python3 "$RSMC_SELFTESTS/fault/reason.py" "$RSMC_PEER_ADDR"; }

usable() { [ "$(reason)" = 0x0 ]; }

# unfit NAME FAULT DRIVER PARAMETER=VALUE...: devices of this driver with these lacks.
unfit() {
	name=$1 fault=$2 driver=$3
	shift 3
	insmod /rsmc/kmod/verb_fault.ko "$@"
	renew
	echo "$driver" >/sys/module/verb_fault/parameters/driver
	reload
	echo 0 >/sys/module/verb_fault/parameters/driver
	made=$(parameter qps) refused=$(parameter refused)
	is "$name.reason" "$(reason) $(reason)" "0x3030000 0x3030000"
	is "$name.not_asked" "$(parameter qps) $(parameter refused)" "$made $refused"
	is "$name.told" "$(ns a rsmc dev | grep -c "no: $fault")" 2
	rmmod verb_fault
}

ktap_plan 15
check before wait_for 10 usable
# As it is, `verb_fault` refuses what ionic does: solicited requests that take no receive.
insmod /rsmc/kmod/verb_fault.ko
renew
check solicited wait_for 5 usable
rmmod verb_fault
unfit registration "the device has no fast registration" 0 no_frmr=1
# 2 MiB alone.
unfit page_size "the device registers no pages of this kernel's size" 0 page_sizes=0x200000
unfit queue_pairs "the device refuses queue pairs to the kernel" 0 no_rc=1
# RDMA_DRIVER_OCRDMA
unfit first_byte "the device's driver cannot register memory at an address of our choice" 7
renew
reload
check after wait_for 10 usable
ktap_exit
