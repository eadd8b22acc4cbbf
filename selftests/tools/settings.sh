#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Settings of /etc/sysctl.d/rsmc.conf after the module has been loaded, as at a boot: systemd-sysctl has run before that and
# could not set them.
. "$RSMC_SELFTESTS/lib.sh"

file=/etc/sysctl.d/rsmc.conf
unit=rsmc-test.service
rule=/etc/rsmc/policy.d/$unit.conf
leave() {
	rm -f $file $rule
	rmdir /etc/rsmc/policy.d /etc/rsmc
	rsmc policy flush
	sysctl -qw net.smc.strict=0 net.smc.path_local=1 net.smc.max_drains="$drains"
} >/dev/null 2>&1
trap leave EXIT
fresh() { # no module
	wait_for 10 rsmc unload
} >/dev/null 2>&1
settings() {
	cat /proc/sys/net/smc/strict /proc/sys/net/smc/path_local /proc/sys/net/smc/max_drains 2>&1 | paste -sd' '
}
drains=$(cat /proc/sys/net/smc/max_drains)
mkdir -p /etc/sysctl.d /etc/rsmc/policy.d
printf 'net.smc.strict = 1\nnet/smc/path_local = 0\n-net.smc.max_drains = 77\n' >$file
echo "allow cgroup=/system.slice/$unit" >$rule

ktap_plan 6
check unloaded fresh
check up rsmc up
is boot "$(settings)" "1 0 77"
check unloaded_again fresh
rsmc up --unit $unit >/dev/null 2>&1
is service_that_loads_it "$(settings)" "1 0 77"
# What was there before a service starts is as it is.
sysctl -qw net.smc.strict=0
rsmc up --unit $unit >/dev/null 2>&1
is service_that_finds_it "$(settings)" "0 0 77"
ktap_exit
