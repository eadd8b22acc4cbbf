#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# interop/transfer.sh [ARGUMENT of transfer...]
# Bytes both ways between this module in one guest and the C module in the
# other. The side with our module proves its path; the C module cannot be asked
# by RSMC_INFO.
if grep -q '^rsmc ' /proc/modules; then
	exec transfer --mode any "$@"
fi
if ! grep -q '^smc ' /proc/modules; then
	echo "interop/transfer.sh: neither rsmc nor smc is loaded" >&2
	exit 1
fi
exec transfer --info off "$@"
