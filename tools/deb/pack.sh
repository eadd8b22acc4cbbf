#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# pack.sh tools PROGRAMS | dkms | modules RELEASE MODULE SIGN-FILE
# Makes one Debian package; `lab deb` builds what goes into it and runs this in
# the sysroot. PROGRAMS is the directory with the built programs, MODULE an
# rsmc.ko for the kernel RELEASE. Expects
#   TOP                the checkout
#   OUT                the directory for the package
#   WORK               a directory to work in
#   VERSION            the package's version
#   SOURCE_DATE_EPOCH  the time of all files
#   SIGN_KEY, SIGN_CERT  to sign the module with, may be empty
# The same input gives the same bytes.
set -eu
umask 022
export LC_ALL=C.UTF-8 TZ=UTC SOURCE_DATE_EPOCH
here=$TOP/tools/deb
# The project has no mail address of its own, so the domain is one that RFC 2606 reserves; SECURITY.md and
# CONTRIBUTING.md say where to turn. Whoever publishes packages sets RSMC_MAINTAINER.
MAINTAINER=${RSMC_MAINTAINER:-rsmc developers <rsmc-developers@example.org>}

# begin PACKAGE: an empty tree for it.
begin() {
	package=$1
	tree=$WORK/$package
	rm -rf "$tree"
	mkdir -p "$tree/DEBIAN" "$tree/usr/share/doc/$package"
}

# put MODE FILE PATH: a file at a path of the package.
put() {
	mkdir -p "$tree/$(dirname "$3")"
	install -m "$1" "$2" "$tree/$3"
}

# fill FILE: a template with this package's values.
fill() {
	sed -e "s|@VERSION@|$VERSION|g" -e "s|@RELEASE@|${release:-}|g" "$1"
}

# scripts DIRECTORY: its maintainer scripts.
scripts() {
	for name in postinst prerm postrm; do
		[ ! -e "$1/$name" ] || fill "$1/$name" >"$tree/DEBIAN/$name"
		[ ! -e "$1/$name" ] || chmod 755 "$tree/DEBIAN/$name"
	done
}

# finish CONTROL ARCHITECTURE DEPENDS: adds what every package has, and makes it.
finish() {
	doc=$tree/usr/share/doc/$package
	cp "$here/copyright" "$doc/copyright"
	[ ! -e "$WORK/crates" ] || [ "$package" != rsmc-tools ] || cat "$WORK/crates" >>"$doc/copyright"
	{
		echo "rsmc ($VERSION) unstable; urgency=medium"
		echo
		echo "  * Built from the sources of this version."
		echo
		echo " -- $MAINTAINER  $(date -u -R -d "@$SOURCE_DATE_EPOCH")"
	} | gzip -9n >"$doc/changelog.gz"
	if [ -d "$tree/etc" ]; then
		(cd "$tree" && find etc -type f | LC_ALL=C sort | sed 's|^|/|') >"$tree/DEBIAN/conffiles"
	fi
	find "$tree" -type d -exec chmod 755 {} +
	find "$tree" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
	size=$(du -k -s --apparent-size --exclude=DEBIAN "$tree" | cut -f1)
	{
		echo "Package: $package"
		echo "Source: rsmc"
		echo "Version: $VERSION"
		echo "Architecture: $2"
		echo "Maintainer: $MAINTAINER"
		echo "Installed-Size: $size"
		[ -z "$3" ] || echo "Depends: $3"
		fill "$1"
	} >"$tree/DEBIAN/control"
	(cd "$tree" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"
	# Neither the order in which files were made nor the number of processors shows.
	dpkg-deb --root-owner-group -Zxz --threads-max=1 --build "$tree" "$OUT/${package}_${VERSION}_$2.deb" >/dev/null
	rm -rf "$tree"
}

# The newest version of glibc whose symbols these files use.
libc() {
	objdump -T "$@" | sed -n 's/.*(\{0,1\}GLIBC_\([0-9.]*\).*/\1/p' | sort -V | tail -n 1
}

tools() { # PROGRAMS
	begin rsmc-tools
	put 755 "$1/rsmc" usr/bin/rsmc
	put 644 "$1/librsmc_preload.so" usr/lib/rsmc/librsmc_preload.so
	strip --remove-section=.comment "$tree/usr/bin/rsmc"
	strip --strip-unneeded --remove-section=.comment "$tree/usr/lib/rsmc/librsmc_preload.so"
	for name in smcss smcr smcd smc_pnet smc_run smc_chk; do
		ln -s rsmc "$tree/usr/bin/$name"
	done
	share=$tree/usr/share
	mkdir -p "$share/man/man1" "$share/bash-completion/completions" \
		"$share/zsh/vendor-completions" "$share/fish/vendor_completions.d"
	rsmc=$tree/usr/bin/rsmc
	"$rsmc" man "$share/man/man1"
	"$rsmc" completion bash "$share/bash-completion/completions"
	"$rsmc" completion zsh "$share/zsh/vendor-completions"
	"$rsmc" completion fish "$share/fish/vendor_completions.d"
	find "$share/man" -type f -exec gzip -9n {} +
	for unit in "$TOP"/tools/systemd/*.service "$TOP"/tools/monitoring/*.service "$TOP"/tools/monitoring/*.timer; do
		# Units are for programs in /usr/local; here they are in /usr.
		sed 's|/usr/local/|/usr/|g' "$unit" >"$WORK/unit"
		put 644 "$WORK/unit" "usr/lib/systemd/system/$(basename "$unit")"
	done
	for file in grafana.json alerts.yml; do
		put 644 "$TOP/tools/monitoring/$file" "usr/share/doc/rsmc-tools/examples/$file"
	done
	put 644 "$here/etc/sysctl.conf" etc/sysctl.d/rsmc.conf
	put 644 "$here/etc/policy.conf" etc/rsmc/policy.conf
	scripts "$here/tools"
	needed=$(libc "$tree/usr/bin/rsmc" "$tree/usr/lib/rsmc/librsmc_preload.so")
	finish "$here/tools/control" amd64 "libc6 (>= $needed), libgcc-s1"
}

modules() { # RELEASE MODULE SIGN-FILE
	release=$1
	begin "rsmc-modules-$release"
	put 644 "$2" "usr/lib/modules/$release/updates/rsmc.ko"
	ko=$tree/usr/lib/modules/$release/updates/rsmc.ko
	# Before it is signed. The build's path is in the debug information only.
	strip --strip-debug "$ko"
	if [ -n "${SIGN_KEY:-}" ]; then "$3" sha256 "$SIGN_KEY" "$SIGN_CERT" "$ko"; fi
	scripts "$here/modules"
	finish "$here/modules/control" amd64 "kmod"
}

dkms() {
	begin rsmc-dkms
	source=usr/src/rsmc-$VERSION
	for file in $(cd "$TOP" && find Kbuild Makefile rust -type f | LC_ALL=C sort); do
		case $file in
		*/fuzz/* | */target/* | */tests/* | */Cargo.* | */FLOORS | *.md | */.gitignore | *.o | *.ko | *.cmd | *.d | *.mod | *.mod.c | *.rmeta | *_generated* | *kernel_types.txt) continue ;;
		*.sh) mode=755 ;;
		*) mode=644 ;;
		esac
		put "$mode" "$TOP/$file" "$source/$file"
	done
	for file in build kdir metadata; do
		put 755 "$TOP/tools/dkms/$file" "$source/dkms/$file"
	done
	put 644 "$TOP/tools/dkms/lib.sh" "$source/dkms/lib.sh"
	fill "$TOP/tools/dkms/dkms.conf" >"$tree/$source/dkms.conf"
	chmod 644 "$tree/$source/dkms.conf"
	mkdir -p "$tree/usr/sbin" "$tree/usr/share/man/man8"
	fill "$TOP/tools/dkms/rsmc-dkms" >"$tree/usr/sbin/rsmc-dkms"
	chmod 755 "$tree/usr/sbin/rsmc-dkms"
	fill "$TOP/tools/dkms/rsmc-dkms.8" | gzip -9n >"$tree/usr/share/man/man8/rsmc-dkms.8.gz"
	for when in postinst header_postinst; do
		put 755 "$TOP/tools/dkms/hook" "etc/kernel/$when.d/a-rsmc-dkms"
	done
	put 755 "$TOP/tools/dkms/hook-postrm" etc/kernel/postrm.d/rsmc-dkms
	scripts "$here/dkms"
	finish "$here/dkms/control" all "$(cat "$here/dkms/depends")"
}

mkdir -p "$OUT" "$WORK"
verb=$1
shift
case $verb in
tools | modules | dkms) "$verb" "$@" ;;
*)
	echo "pack.sh: there is no package '$verb'" >&2
	exit 2
	;;
esac
