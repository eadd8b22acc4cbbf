#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# A link group outlives its last connection by ten minutes, in which the next connection joins it, and
# then ends at both ends, its memory with it.
. "$RSMC_SELFTESTS/lib.sh"

one() { stress --mode 0 --short 1 short; }
groups() { ns "$1" rsmc link --json | grep -c '"group"'; }
none() { [ "$(groups a)$(groups b)" = 00 ]; }

ktap_plan 5
check first one
ns a rsmc link --json >&2
sleep 570
is kept "$(groups a) $(groups b)" "1 1"
check joins one
# The ten minutes have begun anew.
sleep 60
is kept_on "$(groups a) $(groups b)" "1 1"
check ends wait_for 600 none
ktap_exit
