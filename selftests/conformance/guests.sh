#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Two guests: redis-server as a service with the restrictions of Debian's own unit, started by a systemd that is process 1
# of a PID namespace, and nginx with its forked workers, over SMC-R by the sysctl tcp2smc alone; then they are TCP again.
. "$RSMC_SELFTESTS/conformance/common.sh"
. "$RSMC_SELFTESTS/conformance/manager.sh"
need $MANAGER redis-server redis-cli redis-benchmark nginx curl nsenter

nginx_conf "worker_processes 2; events { worker_connections 128; }" <<END
	sendfile on;
	tcp_nopush on;
	server { listen 10.77.0.2:9031; root $TMPDIR/www; }
END
seq 3000000 | head -c 5000000 >"$TMPDIR/www/large"

unit=/usr/lib/systemd/system/redis-server.service
# Not what else a system starts, udev for instance, which gives the guest's device another name.
dropin=/run/systemd/system/redis-server.service.d
conf=/etc/redis/redis.conf
leave() {
	served
	if [ -n "$launcher" ]; then
		inside systemctl stop redis-server.service
		unmanage
		cat "$TMPDIR/redis.conf" >$conf
	fi
} >/dev/null 2>&1
launcher=
trap leave EXIT

asked_redis() { # KIND: values of several sizes come back, and the benchmark's commands are answered
	for size in 1 70000 3000000; do
		head -c $size /dev/urandom | base64 -w0 >"$TMPDIR/v"
		run a "$1" redis-cli -h 10.77.0.2 -p 9030 -x set key <"$TMPDIR/v" >"$TMPDIR/said" || return 1
		run a "$1" redis-cli -h 10.77.0.2 -p 9030 get key | head -c -1 | cmp - "$TMPDIR/v" || return 1
	done
	run a "$1" timeout "$(slow 120)" redis-benchmark -h 10.77.0.2 -p 9030 -n 400 -c 20 -t set,get,lpush --csv >"$TMPDIR/csv" &&
		[ "$(grep -cE '^"(SET|GET|LPUSH)"' "$TMPDIR/csv")" = 3 ]
}
fetched() { # KIND
	run a "$1" curl -sS --max-time "$(slow 60)" http://10.77.0.2:9031/large | cmp - "$TMPDIR/www/large"
}

ktap_plan "$(serves && echo 8 || echo 6)"
if serves; then
	before=$(md5sum $unit)
	# The address is all that differs from Debian's.
	cp $conf "$TMPDIR/redis.conf"
	sed -i 's/^bind .*/bind 10.77.0.2/; s/^protected-mode .*/protected-mode no/; s/^port .*/port 9030/' $conf
	mkdir -p /var/lib/redis /var/log/redis
	chown redis:redis /var/lib/redis /var/log/redis
	manage "mkdir -p $dropin && printf '[Unit]\\nDefaultDependencies=no\\n' >$dropin/test.conf"
	check manager wait_for 120 inside systemctl start rsmc-test.target || sed 's/^/# /' "$TMPDIR/manager"
fi
for kind in smc plain; do
	c0=$(counted a client) s0=$(counted b server)
	serve $kind 9031 nginx -p "$TMPDIR" -c "$TMPDIR/nginx.conf"
	if serves; then
		check "restarted.$kind" inside systemctl restart redis-server.service
		up 9030 60 || inside systemctl status redis-server.service | sed 's/^/# /'
		is "restricted.$kind" "$(inside systemctl show -p NoNewPrivileges,RestrictAddressFamilies --value redis-server.service |
			paste -sd' ')" "yes AF_INET AF_INET6 AF_UNIX"
	fi
	barrier "serving.$kind" 240
	ask "redis.$kind" asked_redis $kind
	ask "nginx.$kind" fetched $kind
	barrier "asked.$kind" 240
	proof guests $kind "$c0" "$s0" 60
	served
done
! serves || is unit_is_as_it_was "$(md5sum $unit)" "$before"
ktap_exit
