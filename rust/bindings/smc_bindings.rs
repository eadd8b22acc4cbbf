// SPDX-License-Identifier: GPL-2.0

//! Raw bindings of the kernel interfaces which the kernel crate does not bind.
//!
//! Holds generated code and the C helpers' prototypes. Logic, wrappers and safe functions are the
//! `kapi` crate's. Types that are complete in [`kernel::bindings`] are re-exported from there, so both
//! crates speak of the same type.

#![recursion_limit = "2048"]
#![allow(
    clippy::all,
    clippy::cast_lossless,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unknown_lints,
    unnecessary_transmutes,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    unused_imports
)]

mod raw {
    use kernel::ffi;
    use pin_init::{MaybeZeroable, Zeroable};

    pub use super::helpers::*;
    pub use kernel::bindings::*;

    type __kernel_size_t = usize;
    type __kernel_ssize_t = isize;
    type __kernel_ptrdiff_t = isize;

    // SAFETY: `__BindgenBitfieldUnit` is a newtype around its storage.
    unsafe impl<Storage> Zeroable for __BindgenBitfieldUnit<Storage> where Storage: Zeroable {}

    include!(concat!(
        env!("RSMC_OBJ"),
        "/rust/bindings/bindings_generated.rs"
    ));
}

mod helpers {
    use super::raw::*;
    use kernel::ffi;

    include!(concat!(
        env!("RSMC_OBJ"),
        "/rust/bindings/helpers_generated.rs"
    ));
}

pub use raw::*;
