// SPDX-License-Identifier: GPL-2.0

//! Writes the archive format of initramfs images ("newc"), with everything
//! owned by root and no need to be root.

/// An archive being written.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    inode: u32,
}

impl Archive {
    /// Adds a directory.
    pub fn directory(&mut self, path: &str) {
        self.record(path, 0o040_755, &[]);
    }

    /// Adds an executable file.
    pub fn file(&mut self, path: &str, data: &[u8]) {
        self.record(path, 0o100_755, data);
    }

    /// Adds a character device.
    pub fn character_device(&mut self, path: &str, major: u32, minor: u32) {
        self.entry(path, 0o020_600, &[], (major, minor));
    }

    /// Ends the archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.record("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn record(&mut self, path: &str, mode: u32, data: &[u8]) {
        self.entry(path, mode, data, (0, 0));
    }

    fn entry(&mut self, path: &str, mode: u32, data: &[u8], device: (u32, u32)) {
        self.inode += 1;
        let fields = [
            self.inode,
            mode,
            0,
            0,
            1,
            0,
            data.len() as u32,
            0,
            0,
            device.0,
            device.1,
            path.len() as u32 + 1,
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(data);
        self.pad();
    }

    fn pad(&mut self) {
        while self.bytes.len() % 4 != 0 {
            self.bytes.push(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_aligned() {
        let mut archive = Archive::default();
        archive.directory("dev");
        archive.file("init", b"12345");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(&bytes[..6], b"070701");
        assert_eq!(&bytes[116..122], b"070701");
        assert!(bytes.windows(10).any(|window| window == b"TRAILER!!!"));
    }
}
