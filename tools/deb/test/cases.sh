#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# cases.sh CASE RELEASE NEXT
# One case of `lab test-packages`, in a Debian root of its own: the packages are in
# /run/debs; RELEASE is a kernel whose headers the roots for DKMS have, NEXT a newer one.
set -eu
case=$1 release=$2 next=$3
apt() {
	apt-get -y -o Dpkg::Use-Pty=0 --no-install-recommends "$@"
}

fail() {
	echo "# $*"
	exit 1
}

# All files of the system but apt's and dpkg's own, and what changes by itself.
files() {
	find / -xdev \( -path /run -o -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /var/log \
		-o -path /var/cache/apt -o -path /var/lib/apt -o -path /var/lib/dpkg -o -path /var/cache/debconf \
		-o -path /var/cache/ldconfig -o -path /root \) -prune -o -print | LC_ALL=C sort
}

# What has to outlast a step that looks at the file system.
keep=/root

# said LOG TEXT: one line of the log has the text.
said() {
	line=$(grep -F "rsmc-dkms: $release: no module: " "$1") || fail "nothing said about $release: $(tail -n 3 "$1" | paste -sd' ')"
	[ "$(echo "$line" | wc -l)" = 1 ] || fail "said more than once: $line"
	case $line in *"$2"*) ;; *) fail "instead of '$2': $line" ;; esac
	echo "# $line"
}

# replace PROGRAM SCRIPT: another one in its place; apt lets scripts see /usr/bin only.
replace() {
	mv "/usr/bin/$1" "/usr/bin/$1.real"
	printf '#!/bin/sh\n%s\n' "$2" >"/usr/bin/$1"
	chmod +x "/usr/bin/$1"
}

# refused TEXT: apt ends well, the reason is named, dkms has it as added, and so it
# is when a kernel's hooks run; another kernel package is not kept from anything.
refused() {
	apt install /run/debs/rsmc-dkms_*.deb >/tmp/log 2>&1 || fail "apt failed: $(tail -n 3 /tmp/log | paste -sd' ')"
	status "$1"
}
status() {
	said /tmp/log "$1"
	[ "$(dkms status | sed 's/^[^:]*: //')" = added ] || fail "dkms status: $(dkms status)"
	[ -z "$(find "/lib/modules/$release" -name 'rsmc.ko*')" ] || fail "there is a module"
	if [ -d "/lib/modules/$release/build/include" ]; then
		run-parts --verbose --exit-on-error --arg="$release" /etc/kernel/header_postinst.d >/tmp/hooks 2>&1 ||
			fail "the kernel's hooks failed: $(tail -n 3 /tmp/hooks | paste -sd' ')"
		said /tmp/hooks "$1"
		grep -q "skipped for module(s) rsmc" /tmp/hooks || fail "dkms did not skip it"
	fi
	[ -z "$(dpkg --audit)" ] || fail "$(dpkg --audit)"
}

lintian_() {
	lintian --allow-root --fail-on error --tag-display-limit 0 /run/debs/*.deb >/tmp/log 2>&1 || fail "$(cat /tmp/log)"
	sed 's/^/# /' /tmp/log
	echo "# $(grep -c '^W:' /tmp/log || :) warnings, no errors"
}

# The tests of debian/tests, by Debian's runner, in this root.
autopkgtest_() {
	mkdir -p /tmp/source
	cp -r /run/debian /tmp/source/
	version=$(dpkg-deb -f /run/debs/rsmc-tools_*.deb Version)
	printf 'rsmc (%s) unstable; urgency=medium\n\n  * Tested.\n\n -- rsmc <rsmc@example.org>  Thu, 01 Jan 2026 00:00:00 +0000\n' \
		"$version" >/tmp/source/debian/changelog
	autopkgtest --no-built-binaries /run/debs/rsmc-tools_*.deb /tmp/source/ -- null >/tmp/log 2>&1 || fail "$(tail -n 15 /tmp/log)"
	grep -q "^tools *PASS" /tmp/log || fail "$(tail -n 5 /tmp/log)"
	echo "# $(grep "^tools *PASS" /tmp/log)"
}

install() {
	begun=$(date +%s)
	apt install /run/debs/rsmc-tools_*.deb /run/debs/rsmc-modules-*.deb >/tmp/log 2>&1 || fail "$(tail -n 5 /tmp/log)"
	seconds=$(($(date +%s) - begun))
	echo "# apt install of the tools and the modules of $(ls /run/debs/rsmc-modules-* | wc -l) kernels: $seconds s"
	[ "$seconds" -lt 20 ] || fail "more than 20 s"
	rsmc --version >/dev/null
	smcss --version >/dev/null
	[ -e "/usr/lib/modules/$release/updates/rsmc.ko" ]
	rsmc policy load --check /etc/rsmc/policy.conf | grep -q "0 rules, all right"
	# The kernel's package runs depmod when it is installed; here is no kernel.
	[ ! -e "/usr/lib/modules/$release/modules.dep" ] || fail "depmod ran without a kernel"
	rsmc run -- true || fail "rsmc run does not find its library"
	if rsmc ss 2>/tmp/err; then fail "rsmc ss works without a module"; fi
	echo "# $(cat /tmp/err)"
}

install_for_kernel() {
	modules=/usr/lib/modules/$release
	begun=$(date +%s)
	apt install /run/debs/rsmc-tools_*.deb "/run/debs/rsmc-modules-${release}"_*.deb >/tmp/log 2>&1 || fail "$(tail -n 5 /tmp/log)"
	seconds=$(($(date +%s) - begun))
	echo "# with $release installed, depmod over its $(wc -l <"$modules/modules.order") modules and all: $seconds s"
	[ "$seconds" -lt 20 ] || fail "more than 20 s"
	[ "$(modprobe -S "$release" --show-depends net-pf-43 | tail -n 1)" = "insmod /lib/modules/$release/updates/rsmc.ko " ] ||
		fail "$(modprobe -S "$release" --show-depends net-pf-43 2>&1)"
}

upgrade() {
	# The same under an older version.
	dpkg-deb -R /run/debs/rsmc-tools_*.deb /tmp/old
	sed -i 's/^Version: .*/Version: 0.0.1/' /tmp/old/DEBIAN/control
	dpkg-deb -b /tmp/old /tmp/old.deb >/dev/null
	apt install /tmp/old.deb >/tmp/log 2>&1
	dpkg-query -W -f '${Version}\n' rsmc-tools | grep -qx 0.0.1
	echo "allow exe=/usr/bin/redis-server" >/etc/rsmc/policy.conf
	rm /etc/sysctl.d/rsmc.conf
	apt install /run/debs/rsmc-tools_*.deb </dev/null >/tmp/log 2>&1 || fail "$(tail -n 5 /tmp/log)"
	dpkg-query -W -f '${Version}\n' rsmc-tools | grep -vqx 0.0.1
	[ "$(cat /etc/rsmc/policy.conf)" = "allow exe=/usr/bin/redis-server" ] || fail "policy.conf was changed"
	[ ! -e /etc/sysctl.d/rsmc.conf ] || fail "a removed file came back"
	find /etc -name '*.dpkg-*' | grep . && fail "dpkg left files"
	echo "# changed and removed configuration survived 0.0.1 to $(dpkg-query -W -f '${Version}' rsmc-tools)"
}

purge() {
	mkdir -p "/usr/lib/modules/$release" /etc/systemd/system /etc/modules-load.d
	: >"/usr/lib/modules/$release/modules.order"
	: >"/usr/lib/modules/$release/modules.builtin"
	depmod "$release"
	files >/tmp/before
	grep -h . /usr/lib/modules/"$release"/modules.alias >/tmp/alias.before || :
	apt install /run/debs/rsmc-tools_*.deb "/run/debs/rsmc-modules-${release}"_*.deb >/tmp/log 2>&1
	grep -q "net-pf-43 rsmc" "/usr/lib/modules/$release/modules.alias" || fail "depmod did not run"
	# As `rsmc enable` leaves them, and files of others.
	mkdir -p /etc/rsmc/policy.d /etc/systemd/system/redis-server.service.d /etc/systemd/system/other.service.d
	theirs="/etc/modules-load.d/rsmc.conf /etc/systemd/system/other.service.d/50-rsmc.conf"
	for file in $theirs; do echo rsmc >"$file"; done
	for file in /etc/rsmc/policy.new /etc/rsmc/policy.d/redis-server.service.conf /etc/sysctl.d/50-rsmc.conf \
		/etc/systemd/system/redis-server.service.d/50-rsmc.conf; do
		printf '# Made by \140rsmc enable\140; \140rsmc disable\140 takes it back.\n' >"$file"
	done
	apt purge 'rsmc-*' >/tmp/log 2>&1
	for file in $theirs; do [ "$(cat "$file")" = rsmc ] || fail "$file is gone, which rsmc enable did not make"; done
	rm -r /etc/modules-load.d/rsmc.conf /etc/systemd/system/other.service.d
	files >/tmp/after
	diff /tmp/before /tmp/after >/tmp/diff || fail "left behind: $(cat /tmp/diff)"
	grep -h . /usr/lib/modules/"$release"/modules.alias >/tmp/alias.after || :
	cmp /tmp/alias.before /tmp/alias.after || fail "an alias is left"
	[ -z "$(dpkg-query -W 'rsmc-*' 2>/dev/null)" ] || fail "dpkg knows of it"
	echo "# $(wc -l </tmp/before) files before and after, the same aliases"
}

dkms_interrupted() {
	# Nothing of the toolchain: what is looked at is the package's own scripts.
	apt-get -q update >/dev/null 2>&1
	apt install dkms >/tmp/log 2>&1
	# Configuration dies while the module is being built, as at a power cut; then again, as `dpkg --configure -a` has it.
	dpkg --unpack /run/debs/rsmc-dkms_*.deb >/tmp/log 2>&1 || fail "$(tail -n 3 /tmp/log)"
	mv /usr/sbin/rsmc-dkms /tmp/rsmc-dkms
	printf '#!/bin/sh\n[ "${1-}" != --hook ] || kill -9 $PPID\n' >/usr/sbin/rsmc-dkms
	chmod +x /usr/sbin/rsmc-dkms
	if dpkg --force-depends --configure -a >/tmp/log 2>&1; then fail "it was not interrupted"; fi
	echo "# interrupted: $(dpkg-query -W -f '${Status}' rsmc-dkms); $(dkms status)"
	[ "$(dkms status | sed 's/^[^:]*: //')" = added ] || fail "dkms status: $(dkms status)"
	cp /tmp/rsmc-dkms /usr/sbin/rsmc-dkms
	dpkg --force-depends --configure -a >/tmp/log 2>&1 || fail "not configured a second time: $(tail -n 3 /tmp/log | paste -sd' ')"
	echo "# once more: $(dpkg-query -W -f '${Status}' rsmc-dkms); $(dkms status)"
	# What dkms cannot take back keeps neither an upgrade nor the removal from happening.
	dkms=$(command -v dkms)
	mv "$dkms" "$dkms.real"
	printf '#!/bin/sh\n[ "$1" != remove ] || exit 5\nexec %s.real "$@"\n' "$dkms" >"$dkms"
	chmod +x "$dkms"
	dpkg --purge rsmc-dkms >/tmp/log 2>&1 || fail "not removed: $(tail -n 3 /tmp/log | paste -sd' ')"
	grep "^rsmc-dkms: dkms remove failed" /tmp/log | sed 's/^/# /'
	[ -z "$("$dkms.real" status)" ] || fail "dkms status: $("$dkms.real" status)"
}

dkms_no_headers() {
	# Nothing of the toolchain either: dpkg is told to go on, as if it were there.
	apt-get -q update >/dev/null 2>&1
	apt install dkms >/tmp/log 2>&1
	mkdir -p "/lib/modules/$release/kernel"
	dpkg --force-depends -i /run/debs/rsmc-dkms_*.deb >/tmp/log 2>&1 || fail "$(tail -n 3 /tmp/log)"
	grep -q "no kernel's headers are installed; the module is built when they are" /tmp/log || fail "$(tail -n 3 /tmp/log)"
	if rsmc-dkms "$release" >/tmp/log 2>&1; then fail "rsmc-dkms succeeds"; fi
	status "its headers are missing; apt install linux-headers-$release"
}

dkms_no_compiler() {
	dpkg --force-depends -r rustc >/dev/null 2>&1
	dpkg --force-depends -i /run/debs/rsmc-dkms_*.deb >/tmp/log 2>&1 || fail "$(tail -n 3 /tmp/log)"
	status "rustc is missing; apt install rustc, then: rsmc-dkms"
}

dkms_wrong_rustc() {
	replace rustc 'echo "rustc 1.90.0 (1159e78c4 2025-09-14)"'
	refused "here is 'rustc 1.90.0 (1159e78c4 2025-09-14)'; install that version of rustc, then: rsmc-dkms"
}

dkms_other_architecture() {
	for file in .config include/config/auto.conf; do
		sed -i 's/^CONFIG_X86_64=y$/CONFIG_ARM64=y/' "$(readlink -f "/lib/modules/$release/build")/$file"
	done
	refused "its headers have no Rust metadata, which is made for x86-64 only; build the module by hand"
}

dkms_no_network() {
	refused "no network to fetch linux-source"
	[ ! -e "/var/cache/rsmc-dkms/$release.tmp" ] || fail "half of it is left"
}

dkms_no_space() {
	refused "MB for a while at /var/cache/rsmc-dkms, 100 MB are free; free some, then: rsmc-dkms"
}

dkms_no_source() {
	# An index without backports, as after the kernel's suite was removed from the sources.
	rm -f /etc/apt/sources.list.d/backports.list /var/lib/apt/lists/*backports*
	refused "add the suite that the kernel is from to apt's sources, then: apt update && rsmc-dkms"
}

dkms_killed() {
	# The first thing that is run for the kernel dies as by the OOM killer.
	replace nice 'kill -9 $$'
	refused "making the Rust metadata was killed by signal 9; try again: rsmc-dkms"
	[ ! -e "/var/cache/rsmc-dkms/$release.tmp" ] || fail "half of it is left"
}

# The beginning of the cases below; not a case itself.
dkms_build() {
	before=$(df -Pk /var/cache | awk 'NR == 2 { print $3 }')
	files >"$keep"/before
	begun=$(date +%s)
	apt install /run/debs/rsmc-dkms_*.deb >"$keep"/log 2>&1 || {
		cat "$keep"/log
		exit 1
	}
	echo "$(($(date +%s) - begun)) $(($(df -Pk /var/cache | awk 'NR == 2 { print $3 }') - before))" >"$keep"/cost
	cat "$keep"/log
}

dkms_built() {
	read -r seconds kilobytes <"$keep"/cost
	echo "# with DKMS and no metadata: $seconds s, $((kilobytes / 1024)) MB more on the disk afterwards"
	grep "^rsmc-dkms: " "$keep"/log | sed 's/^/# /'
	[ "$(dkms status | sed 's/^[^:]*: //')" = installed ] || fail "dkms status: $(dkms status)"
	built "$release"
	modinfo -F signer "$ko" | grep -q "DKMS module signing key" || fail "not signed: $(modinfo "$ko")"
	readelf -S "$ko" 2>/dev/null | grep -q debug_info && fail "not stripped"
	# Once more: nothing to do, and nothing is done.
	run-parts --exit-on-error --arg="$release" /etc/kernel/header_postinst.d >/tmp/hooks 2>&1 || fail "$(tail -n 3 /tmp/hooks)"
	grep -q "the module is installed" /tmp/hooks || fail "$(cat /tmp/hooks)"
	apt purge rsmc-dkms >/tmp/log 2>&1 || fail "$(tail -n 3 /tmp/log)"
	files | grep -v '^/var/lib/dkms/mok\.' >/tmp/after
	diff "$keep"/before /tmp/after >/tmp/diff || fail "left behind: $(cat /tmp/diff)"
	echo "# purge left nothing of it; /var/lib/dkms/mok.* is the key of the package dkms"
}

# built RELEASE: the module that DKMS has installed for it.
built() {
	ko=$(find "/lib/modules/$1/updates/dkms" -name 'rsmc.ko*')
	[ -n "$ko" ] || fail "no module for $1"
	[ "$(modinfo -F vermagic "$ko" | cut -d' ' -f1)" = "$1" ] || fail "$(modinfo "$ko")"
}

dkms_second_kernel() {
	md5sum "/lib/modules/$release/updates/dkms/"* >/tmp/first
	apt-get -q update >/dev/null 2>&1
	begun=$(date +%s)
	# With what it needs of its suite.
	suite=$(. /etc/os-release && echo "$VERSION_CODENAME-backports")
	apt install -t "$suite" "linux-image-$next" "linux-headers-$next" >/tmp/log 2>&1 || fail "$(tail -n 5 /tmp/log | paste -sd' ')"
	echo "# $next installed in $(($(date +%s) - begun)) s, with the module"
	grep "^rsmc-dkms: " /tmp/log | sed 's/^/# /'
	built "$next"
	built "$release"
	md5sum --quiet --check /tmp/first || fail "the first kernel's module was changed"
	[ "$(dkms status | sed 's/^[^:]*: //' | sort -u)" = installed ] || fail "dkms status: $(dkms status)"
	[ "$(dkms status | wc -l)" = 2 ] || fail "dkms status: $(dkms status)"
	dkms status | sed 's/^/# /'
}

# undo: the module is gone, the metadata is there.
undo() {
	dkms remove -m rsmc -v "$(dpkg-query -W -f '${Version}' rsmc-dkms)" --all >/dev/null
	dpkg --purge rsmc-dkms >/dev/null 2>&1 || :
}

dkms_full_at_install() {
	# /var/lib/dkms has room for the sources and not for what is built from them; DKMS has forgotten the module.
	mv /var/cache/rsmc-dkms "$keep"/kept
	dpkg --purge rsmc-dkms >/dev/null 2>&1
	rm -rf "/lib/modules/$release/updates"
	mv "$keep"/kept /var/cache/rsmc-dkms
	refused "the disk is full; free"
}

dkms_broken_source() {
	cp -a /var/cache/rsmc-dkms "$keep"/kept
	undo
	cp -a "$keep"/kept /var/cache/rsmc-dkms
	replace bindgen '[ "$1" != --version ] || exec /usr/bin/bindgen.real --version
		echo "error: broken on purpose" >&2
		exit 1'
	refused "building the module failed ("
}

dkms_kernel_removed() {
	run-parts --exit-on-error --arg="$release" /etc/kernel/prerm.d
	run-parts --exit-on-error --arg="$release" /etc/kernel/postrm.d
	[ "$(dkms status | sed 's/^[^:]*: //')" = added ] || fail "dkms status: $(dkms status)"
	[ -z "$(find /lib/modules -name 'rsmc.ko*')" ] || fail "the module stayed"
	[ ! -e "/var/cache/rsmc-dkms/$release" ] || fail "the metadata stayed"
}

case $case in
lintian | autopkgtest) "${case}_" ;;
*) "$case" ;;
esac
