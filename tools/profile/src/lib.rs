// SPDX-License-Identifier: GPL-2.0
//! A QEMU plugin: counts the instructions that a guest executes, by the address of the block they
//! are in, between two marks that a program in the guest sets. `lab bench --profile` makes a table
//! of functions from it.
//!
//! A mark is the instruction `xchg bx, bx`, which does nothing and which no compiler emits. The
//! first one forgets what was counted, the second one writes lines `ADDRESS OWN WIRE`, instructions
//! by whose they are, all hexadecimal, to FILE.0, where FILE is the plugin's argument `out=FILE`; the
//! next two write FILE.1, and so on. Without an argument `roles=FILE` all are OWN.
//!
//! QEMU's interface (`qemu-plugin.h`) differs between its versions in how an instruction's bytes
//! are read; the one of this host is told by the environment variable `QEMU_PLUGIN_API` while
//! building.

mod count;
mod owner;
mod qemu;
