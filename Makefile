# SPDX-License-Identifier: GPL-2.0
#
# Front door. `modules`, `modules_install` and `clean` need nothing but a kernel
# build directory with Rust metadata; everything else goes through
# tools/bootstrap, which sets up what it needs in the cache.

KDIR ?= /lib/modules/$(shell uname -r)/build
LAB := tools/bootstrap

.PHONY: help modules modules_install clean demo test check shell deb test-packages docs release bench bench-check bench-save

help:
	@echo 'rsmc: the SMC socket family for Linux, in Rust'
	@echo
	@echo '  make demo             Redis by rsmc on Debian'\''s own kernel: within a guest, and between two'
	@echo '  make test             host tests, builds, guests of every kind (all there is: ARGS=--thorough)'
	@echo '  make check            formatting, lints, documentation, the wall around unsafe code'
	@echo '  make shell            a prompt in a guest with the module loaded'
	@echo '  make deb              Debian packages, in dist/'
	@echo '  make test-packages    install, upgrade and remove them, and boot with them (long)'
	@echo '  make docs             the documentation as a site, its links checked (ARGS="--out DIR")'
	@echo '  make release          archive, packages and checksums of the tag of this commit'
	@echo '  make bench            cost against plain TCP and the C module, in instructions'
	@echo '  make bench-check      the same, against the committed figures (bench-save renews them)'
	@echo '  make modules          build rsmc.ko against KDIR'
	@echo '  make modules_install  install it (INSTALL_MOD_PATH=...)'
	@echo '  make clean            remove what `make modules` made'
	@echo
	@echo '  KDIR=DIR   kernel build directory with Rust metadata (this machine'\''s: $(KDIR))'
	@echo '  V=1        show commands     LLVM=-19   kernel built with clang     CLIPPY=1   lint the module'
	@echo
	@echo 'The set-up of all but modules is automatic; it lands in $${RSMC_CACHE:-~/.cache/rsmc}.'

# What a kernel build directory must have for a module in Rust; the first thing that is missing is named.
NEEDED := Makefile Module.symvers include/config/auto.conf include/generated/rustc_cfg \
	$(addprefix rust/,libcore.rmeta libbindings.rmeta libkernel.rmeta libmacros.so)
need = for file in $(NEEDED); do \
		test -e '$(KDIR)'/$$file && continue; \
		case $$file in \
		rust/*) what='has no Rust metadata' \
			how='install the package with it (Ubuntu: linux-lib-rust), or take the kernel'\''s build directory' ;; \
		*) what='is no kernel build directory' how='install the kernel'\''s headers, or name another KDIR' ;; \
		esac; \
		echo "KDIR=$(KDIR) $$what ($$file is missing): $$how; '$(LAB) module' builds rsmc.ko for Debian's kernel" >&2; \
		exit 1; \
	done; \
	for program in $(if $(filter modules,$@),$(or $(RUSTC),rustc) $(or $(BINDGEN),bindgen)); do \
		command -v $$program > /dev/null && continue; \
		echo "$$program is missing: install the version that the kernel was built with" >&2; exit 1; \
	done

# KDIR, INSTALL_MOD_PATH, V, LLVM, CLIPPY and all other variables given on the
# command line reach the kernel's make by themselves.
modules modules_install:
	@$(need)
	$(MAKE) -C '$(KDIR)' M='$(CURDIR)' $@

clean:
	@if test -e '$(KDIR)/Makefile'; then $(MAKE) -C '$(KDIR)' M='$(CURDIR)' clean; \
	else echo 'KDIR=$(KDIR) is no kernel build directory: nothing was built with it'; fi

demo test check shell deb test-packages docs:
	$(LAB) $@ $(ARGS)

release:
	tools/release $(ARGS)

# What is named, or else all sets.
bench:
	$(if $(ARGS),$(LAB) bench $(ARGS),$(LAB) bench && $(LAB) bench --kernel bench --rdma && $(LAB) bench --card && $(LAB) bench --local --namespaces)

# On Debian's kernel, then over soft-RoCE and over model cards on one that has the C module as well, then within a host;
# all are always run.
bench-check bench-save:
	@status=0; for set in '' '--kernel bench --rdma' --card '--local --namespaces'; do \
		$(LAB) bench $(@:bench-%=--%) $$set $(ARGS) || status=1; \
	done; exit $$status
