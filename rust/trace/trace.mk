# SPDX-License-Identifier: GPL-2.0
#
# How trace.c and its prototypes for smc_trace.rs are made; bindgen.mk has the rules' parts.

CFLAGS_rust/trace/trace.o := -I$(src)/rust/trace
ifdef CONFIG_CC_IS_CLANG
# A user-mode kernel's own asm-generic/io.h does it.
CFLAGS_rust/trace/trace.o += -Wno-null-pointer-arithmetic
endif
CFLAGS_REMOVE_rust/trace/trace.o := -Wmissing-prototypes -Wmissing-declarations

$(obj)/rust/trace/trace_generated.rs: private rsmc-bg-flags = $(rsmc-bg-helpers) --allowlist-var TRACEPOINT_KEY
$(obj)/rust/trace/trace_generated.rs: private rsmc-bg-post = $(rsmc-bg-rename)
$(obj)/rust/trace/trace_generated.rs: $(src)/rust/trace/trace.c FORCE
	$(call if_changed_dep,rsmc_bindgen)

$(obj)/rust/trace/smc_trace.o: $(obj)/rust/trace/trace_generated.rs

targets += rust/trace/trace_generated.rs
