// SPDX-License-Identifier: GPL-2.0
//! A control group of the test's own.

use crate::bpf::{self, insn};
use crate::errno::cvt;
use std::ffi::CString;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
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

/// This process in a cgroup whose connections over IPv4 go to another address than they name, until it is dropped.
#[derive(Debug)]
pub struct Rewriting(Hierarchy);

impl Rewriting {
    /// Begins; they go to `address`, and the port that they name.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn to(address: Ipv4Addr) -> Result<Self, String> {
        const SOCK_ADDR: u32 = 18;
        const INET4_CONNECT: u32 = 10;
        let code = [
            // user_ip4 = address
            insn(0xb7, 2, 0, 0, i32::from_ne_bytes(address.octets())),
            insn(0x63, 1, 2, 4, 0),
            insn(0xb7, 0, 0, 0, 1),
            insn(0x95, 0, 0, 0, 0),
        ];
        let all = Hierarchy::new()?;
        let group = std::fs::File::open(all.inside()).map_err(|e| e.to_string())?;
        bpf::load(SOCK_ADDR, INET4_CONNECT, &code)
            .and_then(|program| bpf::attach(group.as_raw_fd(), &program, INET4_CONNECT))
            .map_err(|e| format!("program: {e:?}"))?;
        all.enter().map_err(|e| e.to_string())?;
        Ok(Self(all))
    }
}

impl Drop for Rewriting {
    fn drop(&mut self) {
        self.0.leave();
    }
}
