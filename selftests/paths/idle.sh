#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# A link group outlives its last connection by ten minutes, in which the next connection joins it, and
# then ends at both ends, its memory with it.
. "$RSMC_SELFTESTS/lib.sh"

one() { stress --mode 0 --short 1 short; }
# Those of both ends, for the devices are everybody's.
groups() { rsmc link --json | grep -o '"role"' | wc -l; }
none() { [ "$(groups)" -eq 0 ]; }

ktap_plan 5
check first one
sleep 570
is kept "$(groups)" 2
check joins one
# The ten minutes have begun anew.
sleep 60
is kept_on "$(groups)" 2
check ends wait_for 600 none
ktap_exit
