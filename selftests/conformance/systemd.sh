#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# rsmc enable and disable with a systemd that runs: process 1 of a PID namespace, with the cgroups of this guest. A static
# server in a restricted unit is converted, without a change to the unit, and not any more; what stands in the way of
# that is a line in its log and does not keep it from starting.
. "$RSMC_SELFTESTS/lib.sh"
. "$RSMC_SELFTESTS/conformance/manager.sh"
for p in $MANAGER busybox ss nsenter; do
	command -v $p >/dev/null || skip_all "no $p here"
done
sysctl -qw net.smc.tcp2smc=2 || skip_all "this kernel converts no sockets"
sysctl -qw net.smc.tcp2smc=0
chmod 755 "$TMPDIR"
cd "$TMPDIR" || exit 1
mkdir www
chmod 777 www
echo hello >www/file
ip link set lo up

units=/etc/systemd/system
cat >$units/rsmc-test.service <<END
[Unit]
DefaultDependencies=no
[Service]
ExecStart=/usr/bin/busybox httpd -f -p 9021 -h $TMPDIR/www
User=nobody
NoNewPrivileges=yes
CapabilityBoundingSet=
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
ProtectSystem=strict
ProtectKernelModules=yes
ProtectKernelTunables=yes
StandardError=append:$TMPDIR/log
END
touch log

manage
leave() {
	inside rsmc disable rsmc-test
	rsmc policy flush
	sysctl -qw net.smc.tcp2smc=0
	inside systemctl stop rsmc-test.service
	unmanage
	rm -f $units/rsmc-test.service
	ip link set lo down
} >/dev/null 2>&1
trap leave EXIT
listed() { # by the family
	rsmc ss -l | grep -c ':9021 '
}
up() {
	wait_for 20 sh -c "ss -ltnH 'sport = :9021' | grep -q ."
}
get() {
	busybox wget -q -O- http://127.0.0.1:9021/file | grep -qx hello
}
before=$(md5sum $units/rsmc-test.service)

ktap_plan 15
check manager wait_for 60 inside systemctl start rsmc-test.service || {
	sed 's/^/# /' manager
}
up
is tcp_at_first "$(listed)" 0
check enable inside rsmc enable rsmc-test --restart
up
is smc "$(listed)" 1
check serves get
is rule "$(rsmc policy save | grep -v '^#')" "allow cgroup=/system.slice/rsmc-test.service"
is sysctl "$(cat /proc/sys/net/smc/tcp2smc)" 2
is unit_is_as_it_was "$(md5sum $units/rsmc-test.service)" "$before"
# After a boot: nothing is in the kernel until the service starts.
rsmc policy flush
sysctl -qw net.smc.tcp2smc=0
inside systemctl restart rsmc-test.service
up
is boot "$(listed) $(cat /proc/sys/net/smc/tcp2smc)" "1 2"
# What goes wrong keeps nothing from starting.
echo nonsense >>/etc/rsmc/policy.d/rsmc-test.service.conf
rsmc policy flush
is starts_all_the_same "$(inside systemctl restart rsmc-test.service && up && inside systemctl is-active rsmc-test.service)" active
is over_tcp "$(listed)" 0
is log_says_so "$(grep -c 'rsmc-test.service starts over TCP: .*rsmc-test.service.conf:3' log)" 1
check disable inside rsmc disable rsmc-test --restart
up
is tcp_again "$(listed) $(rsmc policy | wc -l)" "0 1"
is nothing_stays "$(find /etc/rsmc $units/rsmc-test.service.d /etc/sysctl.d/50-rsmc.conf 2>/dev/null)" ""
ktap_exit
