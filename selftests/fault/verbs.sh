#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# RDMA verbs that fail one by one; see selftests/src/bin/verbs, whose points these are.
. "$RSMC_SELFTESTS/lib.sh"

[ -e /rsmc/kmod/verb_fault.ko ] || skip_all "the lab did not build verb_fault.ko"
insmod /rsmc/kmod/verb_fault.ko || exit 1
trap 'rmmod verb_fault' EXIT
verbs "$@"
