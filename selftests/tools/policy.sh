#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# rsmc policy: rules are kept, shown, moved, loaded and saved as they were given, wrong ones change nothing,
# and each namespace's are its own. What they do to sockets is bin/convert's.
. "$RSMC_SELFTESTS/lib.sh"
cd "$TMPDIR" || exit 1
trap 'rsmc policy flush' EXIT

rules() { # verdicts and conditions, in order
	rsmc policy list --json | python3 -c 'import json, sys
for rule in json.load(sys.stdin): print((rule["verdict"] + " " + rule["conditions"]).strip())'
}
status() {
	"$@" >/dev/null 2>&1
	echo $?
}
# said COMMAND...: what it says on standard error
said() {
	"$@" 2>&1 >/dev/null
}
id_of() { # LINE of the list
	rsmc policy list | awk -v n="$1" 'NR == n + 1 { print $1 }'
}

ktap_plan 45
is none_at_first "$(rules)" ""
check add rsmc policy add allow exe=/usr/bin/redis-server
check add_more rsmc policy add 'share=10 cgroup=/system.slice/a.service uid=root'
check add_first rsmc policy add deny peer=192.0.2.77/24 peer-port=1-1024 --at 1
check add_second rsmc policy add --at 2 auto comm='nginx*' port=80 mptcp
four='deny peer=192.0.2.0/24 peer-port=1-1024
auto comm=nginx* port=80 mptcp
allow exe=/usr/bin/redis-server
share=10 cgroup=/system.slice/a.service uid=0'
is in_order "$(rules)" "$four"
check del rsmc policy del "$(id_of 2)"
is is_gone "$(rules | wc -l) $(rules | grep -c nginx)" "3 0"
is del_what_is_not "$(status rsmc policy del 4000000)" 5
check save rsmc policy save saved
is saved "$(grep -v '^#' saved)" "$(rules)"
check flush rsmc policy flush
is empty "$(rules)" ""
check load rsmc policy load saved
is loaded "$(rules)" "$(grep -v '^#' saved)"
printf 'allow\nallow port=1-\n' >wrong
is load_wrong "$(said rsmc policy load wrong)" "rsmc: wrong:2: '1-' is no port, and no range of ports"
is load_wrong_status "$(status rsmc policy load wrong)" 2
is unchanged "$(rules)" "$(grep -v '^#' saved)"
check load_check rsmc policy load --check saved
is load_missing "$(status rsmc policy load nowhere)" 1
# Many at once, and too many.
seq 1 4096 | sed 's/.*/deny port=& exe=\/opt\/a\/quite\/long\/path\/to\/a\/program\/that\/is\/number-&/' >many
check load_many rsmc policy load many
is many "$(rules | wc -l)" 4096
is too_many "$(said rsmc policy add allow)" "rsmc: adding a rule: a namespace has at most 4096 rules, whose patterns for programs have at most 4112 bytes with something behind a star"
# Patterns that may begin anew at each byte of a path: as many as a millisecond suffices for. A star at the end is none.
tail=$(printf '%0240d' 0)
seq 1 16 | sed "s/.*/deny exe=\/*\/$tail-&/" >costly
check load_costly rsmc policy load costly
is too_costly "$(said rsmc policy add "deny exe=/*/$tail")" "$(said rsmc policy add "deny exe=/opt/*/$tail")"
is too_costly_status "$(status rsmc policy add "deny exe=/*/$tail")" 5
check cheap rsmc policy add "deny exe=/opt/$tail*"
is costly "$(rules | wc -l)" 17
# A user without rights in another namespace can use no command there, and no sysctl.
rsmc policy load saved
nobody() {
	setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all "$@"
}
is others_have_none "$(unshare -n rsmc policy list | wc -l)" 1
chmod 755 . && chmod 644 saved
for command in list 'add allow' "del $(id_of 1)" flush 'load saved' save 'test --port 1' prune; do
	# shellcheck disable=SC2086
	is "nobody_${command%% *}" "$(status nobody rsmc policy $command </dev/null)" 4
done
is nobody_sets_nothing "$(status nobody sh -c 'echo 1 >/proc/sys/net/smc/strict') $(cat /proc/sys/net/smc/strict)" "2 0"
# An administrator of a user namespace has no rights in this network namespace.
is user_namespace_alone "$(status nobody unshare -Ur rsmc policy list) $(status nobody unshare -Ur rsmc policy flush)" "4 4"
# A container's administrator: its own rules and sysctls, and not ours.
is own_namespace "$(nobody unshare -Urn sh -c 'rsmc policy add allow && rsmc policy list | wc -l')" 2
is own_sysctls "$(nobody unshare -Urn sh -c 'echo 1 >/proc/sys/net/smc/strict && cat /proc/sys/net/smc/strict')" 1
is ours_are_untouched "$(rules) $(cat /proc/sys/net/smc/strict)" "$(grep -v '^#' saved) 0"
# What `auto` has learnt, which is nothing yet.
is nothing_learnt "$(rsmc policy learned | wc -l) $(rsmc policy learned --json | tr -d '[:space:]')" "1 []"
check forget rsmc policy forget
is nobody_forgets "$(status nobody rsmc policy forget)" 4
ktap_exit
