#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# family/vlan.sh PROGRAM [ARGUMENT...]
# PROGRAM between addresses of a VLAN: the RDMA device is that of the interface below, its GID that of
# the VLAN's address, and frames on the wire carry the tag.
. "$RSMC_SELFTESTS/lib.sh"
[ "$RSMC_ROLE" = server ] && n=2 m=1 || n=1 m=2
ip link add link "$RSMC_DEV" name vlan7 type vlan id 7 || exit 1
ip addr add 10.7.0.$n/24 dev vlan7 || exit 1
ip addr add fd07::$n/64 dev vlan7 nodad || exit 1
ip link set vlan7 up || exit 1
export RSMC_ADDR=10.7.0.$n RSMC_PEER_ADDR=10.7.0.$m RSMC_ADDR6=fd07::$n RSMC_PEER_ADDR6=fd07::$m
tagged() { cat /sys/class/net/vlan7/statistics/tx_bytes; }
before=$(tagged)
"$@"
status=$?
# What went by RDMA has passed the VLAN, too.
grown=$(($(tagged) - before))
echo "# $grown bytes were sent by the VLAN"
barrier both_counted || exit 1
ip link delete vlan7 || exit 1
[ "$grown" -gt 1000000 ] || exit 1
exit "$status"
