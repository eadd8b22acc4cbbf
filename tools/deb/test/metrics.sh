#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# metrics.sh: in a guest, prints what rsmc-metrics.service writes, after SMC connections
# and once more after one that became TCP; each line begins with the file's name.
set -eu
. /rsmc/test/lib.sh

# metrics NAME: as the unit's command does it.
metrics() {
	command=$(sed -n 's/^ExecStart=//p' "$(dpkg -L rsmc-tools | grep '/rsmc-metrics.service$')")
	$command || fail "$command: $?"
	sed "s/^/$1: /" /var/lib/prometheus/node-exporter/rsmc.prom
}

ip link set lo up
dpkg -i /rsmc/debs/rsmc-tools_*.deb >/tmp/log 2>&1 || fail "$(tail -n 5 /tmp/log)"
# The module without depmod, which takes minutes in an emulated guest.
dpkg-deb -x "$(ls "/rsmc/debs/rsmc-modules-${release}"_*.deb)" /tmp/module
module=/tmp/module/usr/lib/modules/$release/updates/rsmc.ko
for name in $(modinfo -F depends "$module" | tr , ' '); do modprobe "$name"; done
insmod "$module"
mkdir -p /var/lib/prometheus/node-exporter
talk rsmc run --
metrics first.prom
# Of these two only the client asks for SMC.
socat -u TCP-LISTEN:7001,reuseaddr OPEN:/dev/null &
for _ in $(seq 100); do
	ss -Hltn 'sport = :7001' | grep -q . && break
	sleep 0.1
done
echo | rsmc run -- socat -u - TCP:127.0.0.1:7001
metrics second.prom
