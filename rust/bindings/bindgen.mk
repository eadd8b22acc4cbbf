# SPDX-License-Identifier: GPL-2.0
#
# How the bindings of rsmc are generated: those headers which the kernel's own
# `bindings` crate does not cover (sockets, TCP, netfilter, RDMA).
#
# A type that is complete in `kernel::bindings` is never generated again, so a
# `msghdr` here is the kernel crate's `msghdr`. The list of such types is read
# from the target's own generated file and thus follows the kernel version.
#
# Of `rust/` packages of headers ship no more than the metadata and the macros
# (`*.rmeta`, `*.so`). For these the list is taken from the metadata, and what
# is otherwise read from the kernel's files is here in our own words.
#
# Layout tests stay on: they are compile-time assertions, and they turn a
# struct that libclang lays out differently from Rust into a build error.

rsmc-b := $(obj)/rust/bindings

ifdef CONFIG_CC_IS_CLANG
rsmc-bg-cflags = $(c_flags) -w
else
ifneq ($(wildcard $(srctree)/rust/Makefile),)
# The options libclang does not know, as the kernel itself lists them.
rsmc-bg-skip := $(shell awk '/^bindgen_skip_c_flags/ { on = 1; sub(/^[^=]*=/, "") } \
	on { more = sub(/\\$$/, ""); print; if (!more) exit }' $(srctree)/rust/Makefile)
rsmc-bg-known = $(filter-out $(rsmc-bg-skip),$(c_flags))
else
# The options that decide what a header says and how types are laid out.
rsmc-bg-known = $(filter -nostdinc -isystem -I% -include %.h -D% -U% -std=% -f%wchar \
	-f%-char -fms-extensions -m64 -Wp$(comma)-MMD%,$(c_flags))
endif
# libclang's name of the architecture; UML's is that of its host.
rsmc-bg-target := $(if $(CONFIG_ARM64),aarch64,x86_64)-linux-gnu
rsmc-bg-cflags = $(rsmc-bg-known) -w --target=$(rsmc-bg-target)
endif

ifneq ($(wildcard $(srctree)/rust/bindgen_parameters),)
# `cfi_encoding` needs a language feature that external modules may not use.
rsmc-bg-params := $(shell grep -Ev '^\#|^$$|cfi_encoding' $(srctree)/rust/bindgen_parameters)
else
# As the kernel's own bindings: sizes are `usize`, types that can be zero say so.
# Comments would be taken for documentation, with tests.
rsmc-bg-params := --blocklist-type __kernel_size_t --blocklist-type __kernel_ssize_t \
	--blocklist-type __kernel_ptrdiff_t --no-doc-comments \
	--with-derive-custom-struct .*=MaybeZeroable --with-derive-custom-union .*=MaybeZeroable
endif

quiet_cmd_rsmc_bindgen = BINDGEN $@
      cmd_rsmc_bindgen = $(BINDGEN) $< $(rsmc-bg-flags) --rust-target 1.85 --use-core \
	--with-derive-default --ctypes-prefix ffi --no-debug '.*' \
	--enable-function-attribute-detection -o $@ -- $(rsmc-bg-cflags) \
	-I$(src)/rust/bindings -fno-builtin -D__BINDGEN__ -DMODULE $(rsmc-bg-post)

# Names of the types that are complete in `kernel::bindings`, as one regex.
quiet_cmd_rsmc_types = TYPES   $@
ifneq ($(wildcard $(objtree)/rust/bindings/bindings_generated.rs),)
      cmd_rsmc_types = awk -f $(src)/rust/bindings/types.awk $< | sort -u | paste -sd'|' > $@

$(rsmc-b)/kernel_types.txt: $(objtree)/rust/bindings/bindings_generated.rs \
		$(src)/rust/bindings/types.awk FORCE
	$(call if_changed,rsmc_types)
else
      cmd_rsmc_types = $(CONFIG_SHELL) $(src)/rust/bindings/types.sh $(RUSTC) $< $@ $(rust_common_cmd)

$(rsmc-b)/kernel_types.txt: $(objtree)/rust/libbindings.rmeta $(src)/rust/bindings/types.sh FORCE
	$(call if_changed,rsmc_types)
endif

# `net`, the namespaces and a few packed structs are laid out wrongly by
# bindgen; they are only ever used behind pointers. So is `socket_lock_t`, with lockdep. `RSMC_BREAK_LAYOUT` is for
# the test which shows that a wrong layout does not build.
ifndef RSMC_BREAK_LAYOUT
rsmc-bg-opaque := --opaque-type net --opaque-type ns_common
endif
rsmc-bg-opaque += --opaque-type 'ib_mad_notice_attr.*' --opaque-type ib_user_mad_reg_req \
	--opaque-type socket_lock_t --opaque-type inet6_dev --opaque-type task_struct --opaque-type napi_struct --opaque-type '.*_namespace' \
	--opaque-type 'socket_lock_t__bindgen_ty.*'

$(rsmc-b)/bindings_generated.rs: private rsmc-bg-flags = $(rsmc-bg-params) $(rsmc-bg-opaque) \
	--default-non-copy-union-style manually_drop \
	$$(cat $(src)/rust/bindings/bindgen.params) \
	--blocklist-type "$$(cat $(rsmc-b)/kernel_types.txt)"
$(rsmc-b)/bindings_generated.rs: private rsmc-bg-post = ; sed -Ei \
	's/pub const RUST_CONST_HELPER_([a-zA-Z0-9_]*)/pub const \1/g' $@
$(rsmc-b)/bindings_generated.rs: $(src)/rust/bindings/bindings_helper.h \
		$(src)/rust/bindings/bindgen.params $(rsmc-b)/kernel_types.txt FORCE
	$(call if_changed_dep,rsmc_bindgen)

# Prototypes of C helpers, and nothing else; `x` is then the name of `rsmc_helper_x`.
rsmc-bg-helpers = --blocklist-type '.*' --allowlist-var '' --allowlist-function 'rsmc_helper_.*'
rsmc-bg-rename = ; sed -Ei \
	's/pub fn rsmc_helper_([a-zA-Z0-9_]*)/\#[link_name="rsmc_helper_\1"]\n    pub fn \1/g' $@

$(rsmc-b)/helpers_generated.rs: private rsmc-bg-flags = $(rsmc-bg-helpers)
$(rsmc-b)/helpers_generated.rs: private rsmc-bg-post = $(rsmc-bg-rename)
$(rsmc-b)/helpers_generated.rs: $(src)/rust/bindings/helpers.c FORCE
	$(call if_changed_dep,rsmc_bindgen)

$(rsmc-b)/smc_bindings.o: $(rsmc-b)/bindings_generated.rs $(rsmc-b)/helpers_generated.rs

targets += $(addprefix rust/bindings/,bindings_generated.rs helpers_generated.rs kernel_types.txt)
