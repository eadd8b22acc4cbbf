# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# A systemd that runs, for the scripts here: process 1 of a PID namespace, with the cgroups of this guest. Its mounts are its
# own; /tmp and /etc are everybody's. It has no generators: a dozen programs at each reload, for units that nobody here has.
MANAGER=/usr/lib/systemd/systemd

# manage [COMMAND]: starts it with nothing but rsmc-test.target, after COMMAND, a line of shell that is run where it will be;
# `unmanage` ends it. What it says is in $TMPDIR/manager.
manage() {
	mkdir -p "$TMPDIR/cgroup"
	mount -t cgroup2 none "$TMPDIR/cgroup" || skip_all "no cgroups of version 2"
	printf '[Unit]\nDefaultDependencies=no\n' >/etc/systemd/system/rsmc-test.target
	unshare --pid --fork --kill-child --mount --propagation private sh -c "
		mount -t proc proc /proc && mount -t cgroup2 none /sys/fs/cgroup && mount -t tmpfs tmpfs /run &&
			mount -t tmpfs tmpfs /usr/lib/systemd/system-generators && ${1-:} &&
			exec env -i container=test PATH=\$PATH $MANAGER --system --unit=rsmc-test.target --log-target=console" \
		>"$TMPDIR/manager" 2>&1 &
	launcher=$!
}
inside() { # COMMAND...
	nsenter -t "$(pgrep -P $launcher)" -p -m "$@"
}
unmanage() {
	kill -9 $launcher
	wait
	rm -f /etc/systemd/system/rsmc-test.target
	# What systemd has made.
	wait_for 10 sh -c 'cd "$0" && find . -mindepth 1 -depth -type d -exec rmdir {} +; ! ls -d ./*/' "$TMPDIR/cgroup"
	umount "$TMPDIR/cgroup"
}
