#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Programs that poll the card before they sleep: by SO_BUSY_POLL and by epoll. On a processor of their own they find most
# messages themselves; without the option none.
. "$RSMC_SELFTESTS/lib.sh"

[ "$(nproc)" -ge 2 ] || skip_all "needs two processors"

found() { ns b timeout "$(slow 30)" python3 "$RSMC_SELFTESTS/card/busy_poll.py" "$RSMC_PEER_ADDR" "$1" "$2"; }
# Others may run on the processors meanwhile.
some() { [ "$1" -ge 20 ]; }

ktap_plan 4
for how in read epoll; do
	is "$how.off" "$(found 0 $how)" 0
	count=$(found 100000 $how)
	echo "# $how: $count"
	check "$how.on" some "${count:-0}"
done
ktap_exit
