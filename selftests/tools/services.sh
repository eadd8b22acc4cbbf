#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# rsmc enable, disable and up, on the root of this guest, where no systemd runs: files, rules and the sysctl come, are
# found again and go, what others have made stays, and systemd has nothing against the drop-in.
# --none: without the module, and none to load.
. "$RSMC_SELFTESTS/lib.sh"

status() {
	"$@" >/dev/null 2>&1
	echo $?
}
said() {
	"$@" 2>&1 >/dev/null
}
files() { # all of them, with what is in them
	find /etc -newer "$TMPDIR/begin" -type f -exec md5sum {} + | sort -k2
}
unit=redis-server.service
rule="allow cgroup=/system.slice/$unit"
conf=/etc/rsmc/policy.d/$unit.conf
drop=/etc/systemd/system/$unit.d/50-rsmc.conf
touch "$TMPDIR/begin"
sleep 0.1

if [ "${1-}" = --none ]; then
	# This guest has one, and a line for modprobe that leads to it; both are hidden.
	[ -n "${HIDDEN-}" ] || HIDDEN=1 exec unshare -m --propagation private "$0" --none
	mount -t tmpfs tmpfs "/lib/modules/$(uname -r)"
	mkdir -p /etc/modprobe.d
	mount -t tmpfs tmpfs /etc/modprobe.d
	ktap_plan 6
	is up "$(status rsmc up)" 3
	is up_is_a_line "$(said rsmc up | wc -l) $(said rsmc up | grep -c "$(uname -r)")" "1 1"
	is enabled_for_later "$(status rsmc enable redis-server)" 3
	is files_are_there "$(cat $conf $drop | grep -c "^allow\|^ExecStartPre=-+")" 2
	is up_says_whose "$(said rsmc up --unit $unit | grep -c "$unit starts over TCP")" 1
	rsmc disable redis-server >/dev/null
	is nothing_stays "$(files)" ""
	ktap_exit
fi

leave() {
	rsmc disable redis-server
	rsmc disable nginx
	rsmc policy flush
	rm -f /etc/rsmc/policy.conf /etc/sysctl.d/60-test.conf
	sysctl -qw net.smc.strict=0
	[ -z "$converts" ] || sysctl -qw net.smc.tcp2smc=0
} >/dev/null 2>&1
trap leave EXIT
# Kernels without ftrace take the rules and no value.
converts=
! sysctl -qw net.smc.tcp2smc=2 2>/dev/null || converts=1
[ -z "$converts" ] || sysctl -qw net.smc.tcp2smc=0
value() { # VALUE, where sockets are converted
	[ "$(cat /proc/sys/net/smc/tcp2smc)" = "$([ -n "$converts" ] && echo "$1" || echo 0)" ]
}
rules() {
	rsmc policy save | grep -v '^#'
}

ktap_plan 34
rsmc policy add deny port=1
before=$(files)
# A program that others can change is none for root to run at each start of a service.
mkdir -m 755 "$TMPDIR/theirs"
chmod 755 "$TMPDIR"
cp "$(command -v rsmc)" "$TMPDIR/theirs/rsmc"
chown nobody "$TMPDIR/theirs"
is anothers_program "$(status "$TMPDIR/theirs/rsmc" enable redis-server) $(files)" "2 $before"
is it_is_said_whose "$(said "$TMPDIR/theirs/rsmc" enable redis-server | grep -c "others than root can change $TMPDIR")" 1
is dry_run "$(rsmc enable -n redis-server | grep -c 'would be written') $(files)" "3 $before"
rsmc enable redis-server >"$TMPDIR/said" 2>&1
is enable $? "$([ -n "$converts" ] && echo 0 || echo 1)"
is rule_is_behind_others "$(rules)" "deny port=1
$rule"
check sysctl value 2
check drop_in grep -qx "ExecStartPre=-+$(readlink -f "$(command -v rsmc)") up --unit %n" $drop
is by_alias "$(rsmc enable -n redis)" ""
if [ -z "$converts" ] && command -v systemd-analyze >/dev/null; then
	# It names what it does not like; that of the package is not ours.
	systemd-analyze verify --man=no $unit >"$TMPDIR/verify" 2>&1
	is verified "$(grep -c rsmc "$TMPDIR/verify")" 0
	sed -i s/ExecStartPre/ExecStartBefore/ $drop
	systemd-analyze verify --man=no $unit >"$TMPDIR/verify" 2>&1
	is verifier_reads_it "$(grep -c '50-rsmc.conf.*ExecStartBefore' "$TMPDIR/verify")" 1
	sed -i s/ExecStartBefore/ExecStartPre/ $drop
else
	# It takes long in an emulator.
	skip verified "only on uml, with systemd-analyze"
	skip verifier_reads_it "only on uml, with systemd-analyze"
fi
# What the drop-in calls: nothing is changed where the rule is, and it comes back where it is not.
check up rsmc up --unit $unit
is up_adds_nothing "$(rules | wc -l)" 2
rsmc policy del "$(rsmc policy | awk '/redis/ { print $1 }')"
check up_again rsmc up --unit $unit
is up_adds_the_rule "$(rules | tail -n 1) $(rules | wc -l)" "$rule 2"
# A second one beside it; all of them when there are none, as after a boot.
rsmc enable nginx --mptcp >/dev/null 2>&1
is a_second_one "$(rules | wc -l)" 4
check saved rsmc policy save /etc/rsmc/policy.conf
is saved_without_theirs "$(grep -v '^#' /etc/rsmc/policy.conf)" "deny port=1"
rsmc policy flush
[ -z "$converts" ] || sysctl -qw net.smc.tcp2smc=0
rsmc up >/dev/null 2>&1
is boot "$(rules)" "deny port=1
allow cgroup=/system.slice/nginx.service
allow cgroup=/system.slice/nginx.service mptcp
$rule"
check boot_sysctl value 2
rsmc policy add allow exe=/by/hand
check load rsmc policy load
is load_is_all "$(rules | wc -l) $(rules | grep -c hand)" "4 0"
# What an administrator has turned off is not turned on by a service that starts.
[ -z "$converts" ] || sysctl -qw net.smc.tcp2smc=0
is off_stays_off "$(rsmc up --unit $unit) $(cat /proc/sys/net/smc/tcp2smc)" \
	"rules: 4, net.smc.tcp2smc: 0, so that sockets stay TCP; somebody has changed it (/etc/sysctl.d/50-rsmc.conf has 2) 0"
[ -z "$converts" ] || sysctl -qw net.smc.tcp2smc=2
# The settings of files have their values when that is asked, whoever has changed them; a service that starts leaves them.
mkdir -p /etc/sysctl.d
printf 'net.smc.strict = 1\n-net.smc.not_there = 1\n' >/etc/sysctl.d/60-test.conf
rsmc up --unit $unit >/dev/null
is start_leaves_settings "$(cat /proc/sys/net/smc/strict)" 0
rsmc up >/dev/null
is up_sets_settings "$(cat /proc/sys/net/smc/strict)" 1
printf 'net.smc.strict = 0\nnet.smc.path_local = 17\n' >/etc/sysctl.d/60-test.conf
is bad_setting_is_said "$(status rsmc up) $(said rsmc up | head -n 1) $(cat /proc/sys/net/smc/strict)" \
	"1 rsmc: warning: /etc/sysctl.d/60-test.conf: net.smc.path_local = 17: Invalid argument (os error 22) 0"
rm /etc/sysctl.d/60-test.conf
echo nonsense >>/etc/rsmc/policy.conf
is bad_file "$(rsmc policy flush && said rsmc up --unit $unit)" \
	"rsmc: $unit starts over TCP: /etc/rsmc/policy.conf:3: 'nonsense' is no verdict: allow, deny, auto or share=PERCENT"
rm /etc/rsmc/policy.conf
rsmc up >/dev/null 2>&1
rsmc policy add deny port=1
is disable "$(status rsmc disable redis-server)" 0
is disabled "$(rules | grep -c redis) $(rules | wc -l) $([ -e $drop ] && echo there)" "0 3 "
check sysctl_stays value 2
rsmc disable nginx >/dev/null
is others_stay "$(rules)" "deny port=1"
is files_are_gone "$(files)" "$before"
# All of the host: asked first.
is all_is_asked "$(status rsmc enable --all-on-this-host </dev/null) $(files)" "2 $before"
busybox nc -l -p 7777 >/dev/null &
listener=$!
wait_for 10 sh -c "ss -ltnH 'sport = :7777' | grep -q ."
rsmc enable --all-on-this-host -n >"$TMPDIR/said"
is listeners_are_named "$(grep -c "busybox\\[$listener\\], port 7777\|nc\\[$listener\\], port 7777" "$TMPDIR/said")" 1
kill $listener
if [ -n "$converts" ]; then
	rsmc enable --all-on-this-host --yes >/dev/null
	on=$(cat /proc/sys/net/smc/tcp2smc)
	rsmc disable --all-on-this-host >/dev/null
	is all_and_back "$on $(cat /proc/sys/net/smc/tcp2smc) $(files)" "1 0 $before"
else
	# It cannot be, so no file says that it is.
	is all_and_back "$(status rsmc enable --all-on-this-host --yes) $(files)" "1 $before"
fi
ktap_exit
