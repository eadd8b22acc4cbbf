#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Lays out a source tree with ../../debian and has debhelper make one package of it; `lab deb` runs
# this in the sysroot. Expects what debian/rules wants, and
#   TOP                the checkout
#   OUT                the directory for the package
#   WORK               a directory to work in
#   CRATES             a file with the crates that the programs contain
#   SOURCE_DATE_EPOCH  the time of all files
# The same input gives the same bytes.
set -eu
umask 022
export LC_ALL=C.UTF-8 TZ=UTC
# The project has no mail address of its own, so the domain is one that RFC 2606 reserves; SECURITY.md and
# CONTRIBUTING.md say where to turn. Whoever publishes packages sets RSMC_MAINTAINER.
MAINTAINER=${RSMC_MAINTAINER:-$(sed -n 's/^Maintainer: //p' "$TOP/debian/control")}
tree=$WORK/tree
rm -rf "$tree"
mkdir -p "$tree" "$OUT"
cd "$tree"
cp -r "$TOP/debian" .
ln -s "$TOP" top
sed -i "s|^Maintainer: .*|Maintainer: $MAINTAINER|" debian/control
cat >debian/changelog <<END
rsmc ($VERSION) unstable; urgency=medium

  * Built from the sources of this version.

 -- $MAINTAINER  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
END
case $PACKAGE in
rsmc-tools) cat "$CRATES" >>debian/copyright ;;
rsmc-modules-*)
	sed "s|@RELEASE@|$RELEASE|g" debian/modules.control >>debian/control
	for script in postinst postrm; do
		sed "s|@RELEASE@|$RELEASE|g" "debian/modules.$script" >"debian/$PACKAGE.$script"
	done
	;;
rsmc-dkms)
	for script in postinst prerm; do sed -i "s|@VERSION@|$VERSION|g" "debian/rsmc-dkms.$script"; done
	;;
esac
debian/rules binary
rm -rf "$tree"
