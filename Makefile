# SPDX-License-Identifier: GPL-2.0
#
# Front door. `modules`, `modules_install` and `clean` need nothing but a kernel
# build directory with Rust metadata; everything else goes through
# tools/bootstrap, which sets up what it needs in the cache.

KDIR ?= /lib/modules/$(shell uname -r)/build
LAB := tools/bootstrap

.PHONY: help modules modules_install clean demo test check shell bench bench-check bench-save

help:
	@echo 'rsmc: the SMC socket family for Linux, in Rust'
	@echo
	@echo '  make demo             boot two guests with Debian'\''s own kernel, run Redis over SMC sockets'
	@echo '  make test             everything: host tests, builds, guests of every kind'
	@echo '  make check            formatting, lints, documentation, the wall around unsafe code'
	@echo '  make shell            a prompt in a guest with the module loaded'
	@echo '  make bench            cost against plain TCP, in instructions'
	@echo '  make bench-check      the same and over RDMA, against the committed figures (bench-save renews them)'
	@echo '  make modules          build rsmc.ko against KDIR'
	@echo '  make modules_install  install it (INSTALL_MOD_PATH=...)'
	@echo '  make clean            remove what `make modules` made'
	@echo
	@echo '  KDIR=DIR   kernel build directory with Rust metadata (this machine'\''s: $(KDIR))'
	@echo '  V=1        show commands     LLVM=-19   kernel built with clang     CLIPPY=1   lint the module'
	@echo
	@echo 'The set-up of the first five is automatic; it lands in $${RSMC_CACHE:-~/.cache/rsmc}.'

# KDIR, INSTALL_MOD_PATH, V, LLVM, CLIPPY and all other variables given on the
# command line reach the kernel's make by themselves.
modules modules_install:
	@test -e '$(KDIR)/rust/libkernel.rmeta' || { \
		echo 'KDIR=$(KDIR) is no kernel build directory with Rust metadata.' >&2; \
		echo "'$(LAB) module' builds rsmc.ko for Debian's kernel without one." >&2; exit 1; }
	$(MAKE) -C '$(KDIR)' M='$(CURDIR)' $@

clean:
	@test -e '$(KDIR)/Makefile' || { echo 'KDIR=$(KDIR) is no kernel build directory' >&2; exit 1; }
	$(MAKE) -C '$(KDIR)' M='$(CURDIR)' clean

demo test check shell bench:
	$(LAB) $@ $(ARGS)

# On Debian's kernel, then over RDMA on one that has the C module as well; both are always run.
bench-check bench-save:
	@status=0; for set in '' '--kernel bench --rdma'; do \
		$(LAB) bench $(@:bench-%=--%) $$set $(ARGS) || status=1; \
	done; exit $$status
