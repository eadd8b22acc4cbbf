#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# interop/transfer.sh PROGRAM [ARGUMENT...]
# `transfer` or `stress` between this module in one guest and the C module in
# the other. With an RDMA device in the guests every connection has to be
# SMC-R, without one every one falls back; the side with our module proves it.
# The C module cannot be asked by RSMC_INFO, and needs an enterprise id, of
# which it has none by itself, but for version 1 (interop/with_v1.sh).
program=$1
shift
rdma=$(ls /sys/class/infiniband 2>/dev/null)
if grep -q '^rsmc ' /proc/modules; then
	# Of AF_SMC connections never begin as TCP; those of IPPROTO_SMC are not to with such a peer.
	exec "$program" --mode "$([ -n "$rdma" ] && echo 0 || echo 1)" "$@" --family inet
fi
if ! grep -q '^smc ' /proc/modules; then
	echo "interop/transfer.sh: neither rsmc nor smc is loaded" >&2
	exit 1
fi
if [ -n "$rdma" ] && [ -z "$RSMC_V1" ]; then
	# A test before this one may have added it (5: it is there already).
	rsmc ueid add RSMC-DEFAULT || [ $? -eq 5 ] || exit 1
fi
exec "$program" --info off "$@"
