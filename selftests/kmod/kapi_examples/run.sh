#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Loads kapi_examples.ko, which runs the examples in the documentation of kapi: one point for each, by the
# name of its file.
# usage: run.sh kapi_examples.ko
. "$RSMC_SELFTESTS/lib.sh"

mark="kapi_examples: begin $$ $(date +%s)"
echo "$mark" >/dev/kmsg
insmod "$1"
loaded=$?
log=$(dmesg | sed -n "/$mark/,\$ { /$mark/d; s/.*kapi_examples: //p }")

# The number that the lab found in the sources; what ran is counted here.
extracted=$(echo "$log" | sed -n 's/^[0-9]* of \([0-9]*\) examples ran$/\1/p')
ktap_plan $((${extracted:-0} + 3))
why=
while read -r line; do
	case $line in
	"ok "*) ok "${line#ok }" ;;
	"not ok "*) not_ok "${line#not ok }" "$why" ;;
	*)
		why="$why$line
"
		continue
		;;
	esac
	why=
done <<END
$log
END
is all_ran "$ktap_number" "${extracted:-none}"
is loaded "$loaded" 0
if [ "$loaded" = 0 ]; then
	check unloads rmmod kapi_examples
else
	skip unloads "not loaded"
fi
ktap_exit
