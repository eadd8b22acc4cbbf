#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# A peer that takes a byte now and then does not keep what a closed connection has left behind for ever,
# and there may not be more such connections than the administrator says: then the oldest of the peer that
# has most is aborted.
. "$RSMC_SELFTESTS/lib.sh"

lost() { ns b sed -n 's/^drains_lost //p' /proc/net/smc_fallback; }
slow_reader() { ns b python3 "$RSMC_SELFTESTS/paths/drain.py" "$RSMC_PEER_ADDR" "$@"; }
one=$RSMC_ADDR
other=10.77.0.3

ktap_plan 11
ns a ip addr add $other/24 dev va
ns b sysctl -q net.smc.drain_time=1
check by_the_byte slow_reader ended $one
is counted "$(lost)" 1
check why sh -c "ip netns exec b rsmc why | grep '^1 connection lost data after close'"
ns b sysctl -q net.smc.drain_time=60 net.smc.max_drains=2
check as_many_as_there_may_be slow_reader x-- $one $one $one
is counted_too "$(lost)" 2
# All of them have ended with their peer, so there is room again.
check none_is_left slow_reader -- $one $one
is not_counted "$(lost)" 2
ns b sysctl -q net.smc.max_drains=4
# The last peer finds all places taken by another one, and gets half of them.
check a_peer_does_not_keep_all slow_reader xx--x-- $one $one $one $one $other $other $other
is counted_for_both "$(lost)" 5
ns b sysctl -q net.smc.max_drains=0
check there_may_be_none slow_reader xx $one $other
is counted_all "$(lost)" 7
ktap_exit
