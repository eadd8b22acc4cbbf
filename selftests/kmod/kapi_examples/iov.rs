// SPDX-License-Identifier: GPL-2.0

//! Iterators over bytes, as system calls have them.

use kernel::iov::{IovIterDest, IovIterSource};
use smc_bindings as bindings;

/// Runs `f` with an iterator that reads `from` and one that writes `to`.
pub(crate) fn with<R>(
    from: &[u8],
    to: &mut [u8],
    f: impl FnOnce(&mut IovIterSource<'_>, &mut IovIterDest<'_>) -> R,
) -> R {
    let of_from = bindings::kvec {
        iov_base: from.as_ptr().cast_mut().cast(),
        iov_len: from.len(),
    };
    let of_to = bindings::kvec {
        iov_base: to.as_mut_ptr().cast(),
        iov_len: to.len(),
    };
    let mut source = bindings::iov_iter::default();
    let mut dest = bindings::iov_iter::default();
    // SAFETY: Each becomes an iterator over the bytes that its `kvec` describes, of which those of a source
    // are only read. Bytes, descriptions and iterators outlive `f`.
    let (source, dest) = unsafe {
        bindings::iov_iter_kvec(&mut source, bindings::ITER_SOURCE, &of_from, 1, from.len());
        bindings::iov_iter_kvec(&mut dest, bindings::ITER_DEST, &of_to, 1, to.len());
        (
            IovIterSource::from_raw(&mut source),
            IovIterDest::from_raw(&mut dest),
        )
    };
    f(source, dest)
}
