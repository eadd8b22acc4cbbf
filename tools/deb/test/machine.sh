#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# machine.sh
# Lays out a machine with Secure Boot in /run/machine: Debian's firmware with the vendors'
# keys in its variables, a system partition with shim and what it starts, and mokutil.
set -eu
cd /run/machine
mkdir -p partition/EFI/BOOT
cp /usr/share/OVMF/OVMF_CODE_4M.ms.fd code
cp /usr/share/OVMF/OVMF_VARS_4M.ms.fd variables
cp /usr/lib/shim/shimx64.efi.signed partition/EFI/BOOT/BOOTX64.EFI
cp /usr/lib/shim/mmx64.efi.signed partition/EFI/BOOT/mmx64.efi
cp /usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed partition/EFI/BOOT/grubx64.efi
cp -r /srv/mokutil .
