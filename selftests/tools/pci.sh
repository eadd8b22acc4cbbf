#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# What the module says of a device on the PCI bus: `verb_fault` makes soft-RoCE devices children of the
# first one there is.
. "$RSMC_SELFTESTS/lib.sh"

[ -e /rsmc/kmod/verb_fault.ko ] || skip_all "the lab did not build verb_fault.ko"

# pci KEY: of the first RDMA port.
pci() {
	rsmc dev --json | python3 -c "import json, sys; print(json.load(sys.stdin)[0]['pci']['$1'])"
}

ktap_plan 6
is none.address "$(pci address)" ""
is none.vendor "$(pci vendor)" 0
insmod /rsmc/kmod/verb_fault.ko pci=1
address=$(pci address)
check address test -e "/sys/bus/pci/devices/${address:-none}"
is vendor "$(pci vendor)" "$(($(cat "/sys/bus/pci/devices/$address/vendor")))"
is device "$(pci device)" "$(($(cat "/sys/bus/pci/devices/$address/device")))"
rmmod verb_fault
is gone "$(pci address)" ""
ktap_exit
