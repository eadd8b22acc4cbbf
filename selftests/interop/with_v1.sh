#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# interop/with_v1.sh [--both] PROGRAM [ARGUMENT...]
# Runs a test between this module in one guest and the C module in the other with SMC-R version 1: the C module has
# no enterprise id, and so no version 2, and soft-RoCE gets GIDs of RoCE v1 from kmod/roce_v1. The points are the
# program's. It fails besides unless version 1 was spoken, and no other but with --both.
set -u
both=
[ "$1" != --both ] || { both=1; shift; }
fail() {
	echo "with_v1: $*" >&2
	exit 1
}
export RSMC_V1=1
count() { # connections by this version in either role
	rsmc stats --json | python3 -I -S -c '
import json, sys
def found(it, key):
    return (n for k, v in it.items() for n in ([v] if k == key else found(v, key) if isinstance(v, dict) else []))
it = next(found(json.load(sys.stdin), "smc_r"))
print(it["client_" + sys.argv[1]] + it["server_" + sys.argv[1]])' "$1"
}
! grep -q '^smc ' /proc/modules || rsmc ueid del RSMC-DEFAULT 2>/dev/null
modprobe rdma_rxe || fail "no soft-RoCE"
insmod /rsmc/kmod/roce_v1.ko || fail "roce_v1.ko cannot be loaded"
rdma link add rxe0 type rxe netdev "$RSMC_DEV" || fail "no device"
before=$(count v1) before_v2=$(count v2)
rsmc-barrier with_v1 60 || fail "the other end is not there"

program=$1
shift
"$RSMC_SELFTESTS/$program" "$@"
status=$?

rdma link delete rxe0 || fail "the device cannot be deleted"
rmmod roce_v1 || fail "roce_v1.ko cannot be unloaded"
v1=$(($(count v1) - before)) v2=$(($(count v2) - before_v2))
echo "# connections by version 1: $v1, by version 2: $v2"
[ "$v1" -gt 0 ] || fail "version 1 was not spoken"
[ "$v2" = 0 ] || [ -n "$both" ] || fail "version 2 was spoken"
exit "$status"
