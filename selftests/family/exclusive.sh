#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# family/exclusive.sh PROGRAM [ARGUMENT...]
# PROGRAM, with RDMA devices that only their own network namespace may use: the other mode of
# the RDMA subsystem, which all other tests leave as it is (shared).
rdma system set netns exclusive || exit 1
rdma system show | grep -q 'netns exclusive' || exit 1
"$@"
status=$?
rdma system set netns shared || exit 1
exit $status
