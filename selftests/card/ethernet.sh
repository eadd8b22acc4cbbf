#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# ethernet.sh [PREFIX...]: the Ethernet port of the model card (kmod/card), without the module under test: ethernet.py has
# the points, of which prefixes pick some. Ports pa and pb are in the namespaces a and b, beside the usual devices.
. "$RSMC_SELFTESTS/lib.sh"

modprobe ib_core || skip_all "no RDMA in this kernel"
insmod /rsmc/kmod/card.ko || exit 1
python3 "$RSMC_SELFTESTS/card/ethernet.py" "$@"
status=$?
[ ! -e /sys/module/card ] || rmmod card
exit $status
