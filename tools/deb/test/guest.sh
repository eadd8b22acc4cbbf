#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# guest.sh: the packages on Debian's own kernel, in a guest that has nothing else of ours.
set -eu
. /rsmc/test/lib.sh

ip link set lo up
if modprobe rsmc 2>/dev/null; then fail "there is an rsmc already"; fi
begun=$(date +%s)
dpkg -i /rsmc/debs/rsmc-tools_*.deb >/tmp/log 2>&1 || fail "$(tail -n 5 /tmp/log)"
# Without the module: its absence has a name and a cure.
if rsmc ss 2>/tmp/err; then fail "rsmc ss works without a module"; fi
grep -q "no rsmc.ko for $release: install rsmc-modules-$release" /tmp/err || fail "$(cat /tmp/err)"
echo "# $(cat /tmp/err)"
apt-get -y install "/rsmc/debs/rsmc-modules-${release}"_*.deb >/tmp/log 2>&1 || fail "$(tail -n 5 /tmp/log)"
echo "# tools and module of the running kernel installed in $(($(date +%s) - begun)) s of the guest's"
if rsmc ss 2>/tmp/err; then fail "rsmc ss works without a module"; fi
grep -q "modprobe rsmc" /tmp/err || fail "$(cat /tmp/err)"

# The first SMC socket loads the module.
talk rsmc run --
grep -q "^rsmc " /proc/modules || fail "no socket loaded the module"
grep -q "127.0.0.1:7000.*SMC-D" /tmp/listed || fail "rsmc run: $(cat /tmp/listed)"
grep "127.0.0.1:7000" /tmp/listed | head -n 2 | sed 's/^/# rsmc run: /'
sysctl -q net.smc.tcp2smc=1
talk env
grep -q "127.0.0.1:7000.*SMC-D" /tmp/listed || fail "tcp2smc: $(cat /tmp/listed)"
grep "127.0.0.1:7000" /tmp/listed | head -n 2 | sed 's/^/# tcp2smc: /'
sysctl -q net.smc.tcp2smc=0
rsmc why >/tmp/why || fail "rsmc why"

for _ in $(seq 50); do
	rsmc unload >/tmp/log 2>&1 && break
	sleep 0.5
done
grep -q "^rsmc " /proc/modules && fail "$(cat /tmp/log)"

# Secure Boot as far as it can be had: from here on only signed modules are loaded.
mount -t securityfs none /sys/kernel/security
echo integrity >/sys/kernel/security/lockdown
grep -q '\[integrity\]' /sys/kernel/security/lockdown || fail "no lockdown: $(cat /sys/kernel/security/lockdown)"
if modprobe rsmc 2>/tmp/err; then fail "loaded in spite of lockdown"; fi
echo "# modprobe: $(cat /tmp/err)"
if rsmc ss 2>/tmp/err; then fail "rsmc ss works without a module"; fi
grep -q "mokutil --import /var/lib/dkms/mok.pub" /tmp/err || fail "$(cat /tmp/err)"
echo "# $(cat /tmp/err)"

dpkg --purge "rsmc-modules-$release" rsmc-tools >/tmp/log 2>&1 || fail "$(cat /tmp/log)"
grep -q rsmc "/lib/modules/$release/modules.alias" && fail "an alias is left"
find / -xdev -name '*rsmc*' ! -path '/rsmc*' ! -path '/proc/*' ! -path '/tmp/*' ! -path '/var/l*' | grep . && fail "a file is left"
echo "# purged: no file, no alias"
