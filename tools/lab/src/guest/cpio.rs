// SPDX-License-Identifier: GPL-2.0

//! Writes the archive format of initramfs images ("newc"), with everything
//! owned by root and no need to be root.

use cpio::newc::{self, Builder};
use std::io::{Result, Write};

/// An archive being written.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    inode: u32,
}

impl Archive {
    /// Adds a directory.
    pub fn directory(&mut self, path: &str) -> Result<()> {
        self.entry(Builder::new(path).mode(0o040_755), &[])
    }

    /// Adds an executable file.
    pub fn file(&mut self, path: &str, data: &[u8]) -> Result<()> {
        self.entry(Builder::new(path).mode(0o100_755), data)
    }

    /// Adds a character device.
    pub fn character_device(&mut self, path: &str, major: u32, minor: u32) -> Result<()> {
        let device = Builder::new(path).rdev_major(major).rdev_minor(minor);
        self.entry(device.mode(0o020_600), &[])
    }

    /// Ends the archive.
    pub fn finish(self) -> Result<Vec<u8>> {
        newc::trailer(self.bytes)
    }

    fn entry(&mut self, entry: Builder, data: &[u8]) -> Result<()> {
        self.inode += 1;
        let entry = entry.ino(self.inode);
        let mut writer = entry.write(&mut self.bytes, data.len() as u32);
        writer.write_all(data)?;
        writer.finish().map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_aligned() {
        let mut archive = Archive::default();
        archive.directory("dev").unwrap();
        archive.file("init", b"12345").unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(&bytes[..6], b"070701");
        assert_eq!(&bytes[116..122], b"070701");
        assert!(bytes.windows(10).any(|window| window == b"TRAILER!!!"));
    }
}
