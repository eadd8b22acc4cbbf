// SPDX-License-Identifier: GPL-2.0
//! A control group of the test's own.

use crate::errno::cvt;
use std::ffi::CString;
use std::path::PathBuf;

/// A mounted hierarchy with one cgroup in it; both go when it is dropped. Several processes may have one.
#[derive(Debug)]
pub struct Hierarchy(PathBuf);

impl Hierarchy {
    /// Mounts it below the scratch directory.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn new() -> Result<Self, String> {
        let at = std::env::temp_dir().join(format!("cgroup-{}", std::process::id()));
        std::fs::create_dir(&at).map_err(|e| e.to_string())?;
        let path = CString::new(at.to_string_lossy().as_bytes()).map_err(|e| e.to_string())?;
        let kind = c"cgroup2".as_ptr();
        // SAFETY: Strings that live during the call.
        let ret = unsafe { libc::mount(kind, path.as_ptr(), kind, 0, std::ptr::null()) };
        cvt(ret.into()).map_err(|e| format!("mount: {e}"))?;
        let this = Self(at);
        std::fs::create_dir(this.inside()).map_err(|e| format!("cgroup: {e}"))?;
        Ok(this)
    }

    /// The cgroup.
    pub fn inside(&self) -> PathBuf {
        self.0.join(format!("inside-{}", std::process::id()))
    }

    /// Has the kernel count the memory of the cgroup.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn count_memory(&self) -> std::io::Result<()> {
        std::fs::write(self.0.join("cgroup.subtree_control"), "+memory")
    }

    /// Moves the process into the cgroup.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn enter(&self) -> std::io::Result<()> {
        std::fs::write(self.inside().join("cgroup.procs"), "0")
    }

    /// Moves the process out of it.
    pub fn leave(&self) {
        let _ = std::fs::write(self.0.join("cgroup.procs"), "0");
    }
}

impl Drop for Hierarchy {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(self.inside());
        if let Ok(path) = CString::new(self.0.to_string_lossy().as_bytes()) {
            // SAFETY: A string that lives during the call.
            unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
            let _ = std::fs::remove_dir(&self.0);
        }
    }
}
