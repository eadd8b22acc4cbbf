// SPDX-License-Identifier: GPL-2.0
//! A tar archive of small files, as POSIX describes it (ustar).

const BLOCK: usize = 512;

/// An archive being put together in memory.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
}

impl Archive {
    /// Adds a file. Names of more than 100 bytes are cut: there are none.
    pub fn add(&mut self, name: &str, mtime: u64, content: &[u8]) {
        let mut header = [0u8; BLOCK];
        let mut put = |offset: usize, bytes: &[u8]| {
            if let Some(field) = header.get_mut(offset..offset + bytes.len()) {
                field.copy_from_slice(bytes);
            }
        };
        let name = name.as_bytes();
        put(0, name.get(..100).unwrap_or(name));
        put(100, b"0000644\0");
        put(108, b"0000000\0");
        put(116, b"0000000\0");
        put(124, format!("{:011o}\0", content.len()).as_bytes());
        put(136, format!("{mtime:011o}\0").as_bytes());
        // The checksum counts its own field as blanks.
        put(148, b"        ");
        put(156, b"0");
        put(257, b"ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.bytes.extend_from_slice(&header);
        self.bytes.extend_from_slice(content);
        let padded = self.bytes.len().next_multiple_of(BLOCK);
        self.bytes.resize(padded, 0);
    }

    /// The archive with its end.
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 2 * BLOCK, 0);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    #[test]
    fn tar_reads_it() {
        let mut archive = Archive::default();
        archive.add("report/one.txt", 1_700_000_000, b"first\n");
        archive.add("report/two.txt", 1_700_000_000, &[b'x'; 512]);
        archive.add("report/empty", 0, b"");
        let bytes = archive.finish();
        assert_eq!(bytes.len(), 512 * (3 + 1 + 1 + 2));
        let tar = Command::new("tar")
            .args(["-xOf", "-", "report/one.txt", "report/two.txt"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut tar) = tar else {
            eprintln!("skipped: no tar here");
            return;
        };
        tar.stdin.take().unwrap().write_all(&bytes).unwrap();
        let output = tar.wait_with_output().unwrap();
        assert!(output.status.success());
        assert_eq!(output.stdout, [&b"first\n"[..], &[b'x'; 512]].concat());
    }
}
