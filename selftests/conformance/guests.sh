#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Two guests: redis-server as a service with the restrictions of Debian's own unit, started by a systemd that is process 1
# of a PID namespace, and nginx with its forked workers, over SMC-R by the sysctl tcp2smc alone; then they are TCP again.
. "$RSMC_SELFTESTS/conformance/common.sh"
MANAGER=/usr/lib/systemd/systemd
need $MANAGER redis-server redis-cli redis-benchmark nginx curl nsenter

chmod 755 "$TMPDIR"
mkdir -p "$TMPDIR/www" "$TMPDIR/tmp"
seq 3000000 | head -c 5000000 >"$TMPDIR/www/large"
cat >"$TMPDIR/nginx.conf" <<END
daemon off;
worker_processes 2;
user root;
pid $TMPDIR/nginx.pid;
error_log $TMPDIR/error.log;
events { worker_connections 128; }
http {
	access_log off;
	sendfile on;
	tcp_nopush on;
	client_body_temp_path $TMPDIR/tmp/body;
	proxy_temp_path $TMPDIR/tmp/proxy;
	fastcgi_temp_path $TMPDIR/tmp/f;
	uwsgi_temp_path $TMPDIR/tmp/u;
	scgi_temp_path $TMPDIR/tmp/s;
	server {
		listen 10.77.0.2:9031;
		root $TMPDIR/www;
	}
}
END

# Not what else a system starts, udev for instance, which gives the guest's device another name.
dropin=/run/systemd/system/redis-server.service.d
unit=/usr/lib/systemd/system/redis-server.service
manage() { # process 1 of a namespace, with mounts of its own
	printf '[Unit]\nDefaultDependencies=no\n' >/etc/systemd/system/rsmc-test.target
	# All that is changed: the address, and nothing is saved.
	sed -i 's/^bind .*/bind 10.77.0.2/; s/^protected-mode .*/protected-mode no/; s/^port .*/port 9030/' /etc/redis/redis.conf
	mkdir -p "$TMPDIR/cgroup" /var/lib/redis /var/log/redis
	chown redis:redis /var/lib/redis /var/log/redis
	mount -t cgroup2 none "$TMPDIR/cgroup"
	unshare --pid --fork --kill-child --mount --propagation private sh -c "
		mount -t proc proc /proc && mount -t cgroup2 none /sys/fs/cgroup && mount -t tmpfs tmpfs /run &&
			mkdir -p $dropin && printf '[Unit]\\nDefaultDependencies=no\\n' >$dropin/test.conf &&
			exec env -i container=test PATH=\$PATH $MANAGER --system --unit=rsmc-test.target --log-target=console" \
		>"$TMPDIR/manager" 2>&1 &
	launcher=$!
}
inside() {
	nsenter -t "$(pgrep -P $launcher)" -p -m "$@"
}
leave() {
	served
	if [ -n "$launcher" ]; then
		inside systemctl stop redis-server.service
		kill -9 $launcher
		wait
		rm -f /etc/systemd/system/rsmc-test.target
		# What systemd has made.
		wait_for 10 sh -c 'cd "$1" && find . -mindepth 1 -depth -type d -exec rmdir {} +; ! ls -d ./*/' - "$TMPDIR/cgroup"
		umount "$TMPDIR/cgroup"
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

echo "KTAP version 1"
if serves; then
	before=$(md5sum $unit)
	manage
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
