// SPDX-License-Identifier: GPL-2.0

//! Text files in `/proc/net`, of which each network namespace has its own.
//!
//! C header: [`include/linux/proc_fs.h`](srctree/include/linux/proc_fs.h)

use crate::net::netns::{self, Net, PerNet};
use core::marker::PhantomData;
use kernel::{ffi, prelude::*, seq_file::SeqFile};
use smc_bindings as bindings;

/// The text of a file.
pub trait Show: PerNet {
    /// Writes the whole text. Called again for each reader, in process context. `admin` says that the file was opened
    /// with `CAP_NET_ADMIN` in the user namespace that the network namespace belongs to.
    fn show(&self, out: &SeqFile, admin: bool);
}

/// A file in `/proc/net` of a namespace; dropping it removes it, after the last reader has left.
///
/// The namespace must not end before, so keep it in its [`PerNet`] state and drop it in
/// [`PerNet::exit`] at the latest.
pub struct File<T: Show> {
    name: &'static CStr,
    parent: *mut bindings::proc_dir_entry,
    _type: PhantomData<fn() -> T>,
}

// SAFETY: Removing the file is the only operation, and any thread may do it.
unsafe impl<T: Show> Send for File<T> {}
// SAFETY: There is nothing to do with a shared reference.
unsafe impl<T: Show> Sync for File<T> {}

impl<T: Show> File<T> {
    /// Makes a file that every user may read. It is empty until the namespace has its state.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, also when there is a file of that name.
    pub fn new(net: &Net, name: &'static CStr) -> Result<Self> {
        // SAFETY: The namespace is alive.
        let parent = unsafe { bindings::proc_net_dir(net.as_ptr()) };
        // SAFETY: `parent` is the directory `/proc/net` of that namespace, the name is a string,
        // and `show` lives as long as the module, which drops the file before it goes.
        let entry = unsafe {
            bindings::proc_create_net_single(
                name.as_char_ptr(),
                0o444,
                parent,
                Some(Self::show),
                core::ptr::null_mut(),
            )
        };
        if entry.is_null() {
            return Err(ENOMEM);
        }
        Ok(Self {
            name,
            parent,
            _type: PhantomData,
        })
    }

    /// # Safety
    ///
    /// Called by the kernel alone. `seq` is of a file opened by `single_open_net`, and locked.
    unsafe extern "C" fn show(
        seq: *mut bindings::seq_file,
        _token: *mut ffi::c_void,
    ) -> ffi::c_int {
        // SAFETY: `single_open_net` keeps a counted reference to the namespace there.
        let net: &Net = unsafe { Net::from_raw((*seq).private.cast()) };
        if let Some(state) = netns::Registration::<T>::at(net) {
            // SAFETY: `seq` is of an open file, and the namespace is alive.
            let admin = unsafe { bindings::seq_opened_by_admin(seq, net.as_ptr()) };
            // SAFETY: The file's lock is held during `show`.
            state.show(unsafe { SeqFile::from_raw(seq) }, admin);
        }
        0
    }
}

impl<T: Show> Drop for File<T> {
    fn drop(&mut self) {
        // SAFETY: The namespace, and so its directory, still exists; the file was made in `new`.
        unsafe { bindings::remove_proc_entry(self.name.as_char_ptr(), self.parent) };
    }
}
