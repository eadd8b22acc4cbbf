// SPDX-License-Identifier: GPL-2.0
//! Bytes that are written into a TCP connection past the module that owns its socket (`kmod/intrude`).

use crate::fd::Fd;

/// Writes three bytes into the connection.
///
/// # Errors
/// What the module says.
pub fn write(fd: &Fd) -> Result<(), String> {
    // SAFETY: No pointers.
    unsafe { libc::fcntl(fd.raw(), libc::F_SETFD, 0) };
    let out = std::process::Command::new("insmod")
        .arg("/rsmc/kmod/intrude.ko")
        .args([format!("fd={}", fd.raw()), "len=3".into()])
        .output()
        .map_err(|e| format!("insmod: {e}"))?;
    let said = String::from_utf8_lossy(&out.stderr);
    match said.to_lowercase().contains("cancel") {
        true => Ok(()),
        false => Err(format!("intrude: {said}")),
    }
}

/// Number of lines in the kernel log about such bytes.
pub fn lines() -> usize {
    let log = std::process::Command::new("dmesg").output();
    let log = log.map(|o| o.stdout).unwrap_or_default();
    let ours = |line: &&str| line.contains("went by TCP where it had left that");
    String::from_utf8_lossy(&log).lines().filter(ours).count()
}
