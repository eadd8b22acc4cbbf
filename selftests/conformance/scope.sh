#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# rsmc run --scope: a static program in it is converted while the same program beside it is not; it is executed in
# place, and rules, cgroup and sysctl are what they were when it has ended, however it did.
. "$RSMC_SELFTESTS/lib.sh"
for p in busybox python3 setpriv ss; do
	command -v $p >/dev/null || skip_all "no $p here"
done
sysctl -qw net.smc.tcp2smc=2 || skip_all "this kernel converts no sockets"
sysctl -qw net.smc.tcp2smc=0
chmod 755 "$TMPDIR"
cd "$TMPDIR" || exit 1
root=$TMPDIR/cgroup
mkdir "$root" www
mount -t cgroup2 none "$root" || skip_all "no cgroups of version 2"
head -c 300000 /dev/urandom >www/file
ip link set lo up
leave() {
	rsmc policy flush
	sysctl -qw net.smc.tcp2smc=0
	kill "$inside" "$outside"
	wait
	wait_for 10 sh -c "! ls -d $root/rsmc-run-*"
	umount "$root"
	ip link set lo down
} >/dev/null 2>&1
trap leave EXIT

status() {
	"$@" >/dev/null 2>&1
	echo $?
}
said() {
	"$@" 2>&1 >/dev/null
}
clean() { # no rules, no cgroups, and the sysctl
	[ "$(rsmc policy | wc -l)" = 1 ] && ! ls -d "$root"/rsmc-run-* && [ "$(cat /proc/sys/net/smc/tcp2smc)" = "${1-0}" ]
}
up() { # PORT
	wait_for 20 sh -c "ss -ltnH 'sport = :$1' | grep -q ."
}
listed() { # PORT: by the family
	rsmc ss -l | grep -c ":$1 "
}
get() {
	busybox wget -q -O got "http://127.0.0.1:$1/file" && cmp got www/file
}

ktap_plan 25
rsmc run --scope -- busybox httpd -f -p 9001 -h www &
inside=$!
busybox httpd -f -p 9002 -h www &
outside=$!
up 9001 && up 9002
is inside_is_smc "$(listed 9001)" 1
is beside_is_tcp "$(listed 9002)" 0
check served get 9001
check served_beside get 9002
is rules "$(rsmc policy save | grep -v '^#')" "allow cgroup=/rsmc-run-$inside
allow cgroup=/rsmc-run-$inside mptcp"
is in_place "$(tr '\0' ' ' </proc/$inside/cmdline)" "busybox httpd -f -p 9001 -h www "
# Another one beside it; the sysctl is the first one's.
is second "$(rsmc run --scope -- sh -c 'rsmc policy | wc -l; exit 0')" 5
check second_ended wait_for 10 sh -c "[ \"\$(rsmc policy | wc -l)\" = 3 ]"
kill $inside
wait $inside
is by_signal $? 143
check clean wait_for 10 clean
# As the command ends.
is exit_code "$(status rsmc run --scope -- sh -c 'exit 41')" 41
is not_found "$(status rsmc run --scope -- no-such-command)" 127
echo '#!/no/such/interpreter' >broken
chmod +x broken
is no_interpreter "$(status rsmc run --scope -- ./broken)" 127
is not_executable "$(status rsmc run --scope -- ./www)" 126
check clean_again wait_for 10 clean
# A program that asks for MPTCP, as Go does (262), gets what looks like TCP, and has no child that it did not make.
is mptcp "$(rsmc run --scope -- python3 -c 'import os, socket
print(socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL))
try: os.waitpid(-1, os.WNOHANG)
except ChildProcessError: print("alone")' | xargs)" "6 alone"
# What goes on in the background keeps them.
rsmc run --scope -- sh -c 'sleep 100 & echo $! >pid'
is background "$(rsmc policy | wc -l)" 3
kill "$(cat pid)"
check background_ended wait_for 10 clean
# Without its watcher something stays, which the next one or the command removes.
rsmc run --scope -- sleep 100 &
left=$!
wait_for 10 sh -c "grep -qs sleep /proc/$left/comm"
pgrep -f "scope-end.*rsmc-run-$left" | xargs kill -9
kill -9 $left
wait $left
is left_behind "$(rsmc policy | wc -l) $(rsmc policy prune | grep -c "/rsmc-run-$left:")" "3 1"
check pruned clean 2
sysctl -qw net.smc.tcp2smc=0
# Others.
is unprivileged "$(status setpriv --reuid=65534 --clear-groups --inh-caps=-all rsmc run --scope -- true)" 125
is says_what_it_needs "$(said setpriv --reuid=65534 --clear-groups --inh-caps=-all rsmc run --scope -- true)" \
	"rsmc: --scope: listing the rules: not permitted (CAP_NET_ADMIN is needed)"
is container "$(said unshare -C rsmc run --scope -- true | grep -c 'do it on the host')" 1
rsmc policy add deny port=1
is others_would_count "$(status rsmc run --scope -- true) $(cat /proc/sys/net/smc/tcp2smc)" "125 0"
rsmc policy flush
sysctl -qw net.smc.tcp2smc=3
rsmc policy add deny uid=0
is denied_is_said "$(said rsmc run --scope -- true | grep -c 'another rule comes first: TCP: rule')" 1
ktap_exit
