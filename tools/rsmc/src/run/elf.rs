// SPDX-License-Identifier: GPL-2.0
//! The little of ELF that tells whether `LD_PRELOAD` can reach a program.
//!
//! Reads headers of a file nobody vouches for: every offset and count is checked, and no more
//! than [`MAX_TABLE`] bytes of any table are read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Longest header table or string that is read, in bytes.
pub const MAX_TABLE: u64 = 1 << 20;

/// What was found in a program's headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elf {
    /// ELF class: 1 is 32-bit, 2 is 64-bit.
    pub class: u8,
    /// Machine number (`EM_…`).
    pub machine: u16,
    /// The dynamic loader it asks for; none in a static program and in the loader itself.
    pub interpreter: Option<String>,
    /// It has a `DT_SONAME`: a library, such as the dynamic loader when run as a program.
    pub is_library: bool,
    /// It was made by the Go compiler, whose programs make system calls without the C library.
    pub is_go: bool,
}

const PT_DYNAMIC: u64 = 2;
const PT_INTERP: u64 = 3;
const DT_SONAME: u64 = 14;

/// Reads `file` as ELF; `None` if it is not, or is damaged.
///
/// # Errors
/// Only what reading the file gives, other than its being too short.
pub fn read(file: &File) -> io::Result<Option<Elf>> {
    match Reader::new(file) {
        Ok(Some(reader)) => reader.elf().map(Some).or_else(end_is_damage),
        Ok(None) => Ok(None),
        Err(error) => end_is_damage(error),
    }
}

fn end_is_damage(error: io::Error) -> io::Result<Option<Elf>> {
    match error.kind() {
        // InvalidInput: an offset beyond what a file can have.
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
            Ok(None)
        }
        _ => Err(error),
    }
}

struct Reader<'a> {
    file: &'a File,
    header: Vec<u8>,
    wide: bool,
    big: bool,
}

fn damaged() -> io::Error {
    io::Error::from(io::ErrorKind::InvalidData)
}

impl<'a> Reader<'a> {
    fn new(file: &'a File) -> io::Result<Option<Self>> {
        let mut ident = [0u8; 16];
        file.read_exact_at(&mut ident, 0)?;
        if !ident.starts_with(b"\x7fELF")
            || !matches!(ident[4], 1 | 2)
            || !matches!(ident[5], 1 | 2)
        {
            return Ok(None);
        }
        let wide = ident[4] == 2;
        let mut header = vec![0; if wide { 64 } else { 52 }];
        file.read_exact_at(&mut header, 0)?;
        Ok(Some(Self {
            file,
            header,
            wide,
            big: ident[5] == 2,
        }))
    }

    fn number(&self, bytes: &[u8], offset: usize, size: usize) -> io::Result<u64> {
        let end = offset.checked_add(size).ok_or_else(damaged)?;
        let field = bytes.get(offset..end).ok_or_else(damaged)?;
        let fold = |value: u64, byte: &u8| (value << 8) | u64::from(*byte);
        Ok(if self.big {
            field.iter().fold(0, fold)
        } else {
            field.iter().rev().fold(0, fold)
        })
    }

    /// A field whose offset and size differ between the 32- and 64-bit forms.
    fn pick(&self, bytes: &[u8], wide: (usize, usize), narrow: (usize, usize)) -> io::Result<u64> {
        let (offset, size) = if self.wide { wide } else { narrow };
        self.number(bytes, offset, size)
    }

    fn bytes(&self, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        if length > MAX_TABLE {
            return Err(damaged());
        }
        let mut bytes = vec![0; usize::try_from(length).map_err(|_| damaged())?];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    fn table(&self, offset: u64, entry: u64, count: u64) -> io::Result<(Vec<u8>, usize)> {
        let length = entry.checked_mul(count).ok_or_else(damaged)?;
        let entry = usize::try_from(entry).map_err(|_| damaged())?;
        if entry == 0 {
            return Ok((Vec::new(), 1));
        }
        Ok((self.bytes(offset, length)?, entry))
    }

    fn elf(&self) -> io::Result<Elf> {
        let mut elf = Elf {
            class: if self.wide { 2 } else { 1 },
            machine: self.number(&self.header, 18, 2)? as u16,
            ..Elf::default()
        };
        let (programs, size) = self.table(
            self.pick(&self.header, (32, 8), (28, 4))?,
            self.pick(&self.header, (54, 2), (42, 2))?,
            self.pick(&self.header, (56, 2), (44, 2))?,
        )?;
        for program in programs.chunks_exact(size) {
            let offset = self.pick(program, (8, 8), (4, 4))?;
            let length = self.pick(program, (32, 8), (16, 4))?;
            match self.number(program, 0, 4)? {
                PT_INTERP => {
                    let mut name = self.bytes(offset, length)?;
                    name.truncate(
                        name.iter()
                            .position(|byte| *byte == 0)
                            .unwrap_or(name.len()),
                    );
                    elf.interpreter = Some(String::from_utf8_lossy(&name).into_owned());
                }
                PT_DYNAMIC => elf.is_library = self.has_soname(&self.bytes(offset, length)?)?,
                _ => {}
            }
        }
        // Section headers are optional: a stripped file loses a warning, nothing else.
        elf.is_go = self.has_section(b".go.buildinfo").unwrap_or(false);
        Ok(elf)
    }

    fn has_soname(&self, dynamic: &[u8]) -> io::Result<bool> {
        for entry in dynamic.chunks_exact(if self.wide { 16 } else { 8 }) {
            match self.pick(entry, (0, 8), (0, 4))? {
                0 => break,
                DT_SONAME => return Ok(true),
                _ => {}
            }
        }
        Ok(false)
    }

    fn has_section(&self, wanted: &[u8]) -> io::Result<bool> {
        let (sections, size) = self.table(
            self.pick(&self.header, (40, 8), (32, 4))?,
            self.pick(&self.header, (58, 2), (46, 2))?,
            self.pick(&self.header, (60, 2), (48, 2))?,
        )?;
        let names = self.pick(&self.header, (62, 2), (50, 2))?;
        let names = usize::try_from(names).map_err(|_| damaged())?;
        let Some(table) = sections.chunks_exact(size).nth(names) else {
            return Ok(false);
        };
        let names = self.bytes(
            self.pick(table, (24, 8), (16, 4))?,
            self.pick(table, (32, 8), (20, 4))?,
        )?;
        for section in sections.chunks_exact(size) {
            let start = self.number(section, 0, 4)? as usize;
            let name = names.get(start..).unwrap_or(&[]);
            if name.split(|byte| *byte == 0).next() == Some(wanted) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn parsed(bytes: &[u8]) -> Option<Elf> {
        let name = format!("rsmc-elf-{}-{:p}", std::process::id(), bytes);
        let path = std::env::temp_dir().join(name);
        File::create(&path).unwrap().write_all(bytes).unwrap();
        let elf = read(&File::open(&path).unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        elf
    }

    #[test]
    fn this_test_is_dynamic() {
        let elf = read(&File::open("/proc/self/exe").unwrap())
            .unwrap()
            .unwrap();
        assert_eq!(elf.class, 2);
        assert!(
            elf.interpreter.is_some() && !elf.is_library && !elf.is_go,
            "{elf:?}"
        );
    }

    #[test]
    fn the_loader_is_a_library_without_interpreter() {
        let own = read(&File::open("/proc/self/exe").unwrap())
            .unwrap()
            .unwrap();
        let loader = File::open(own.interpreter.unwrap()).unwrap();
        let elf = read(&loader).unwrap().unwrap();
        assert!(elf.interpreter.is_none() && elf.is_library, "{elf:?}");
    }

    #[test]
    fn other_files_are_not_elf() {
        assert_eq!(parsed(b""), None);
        assert_eq!(parsed(b"#!/bin/sh\necho a long enough script\n"), None);
        assert_eq!(parsed(b"\x7fELF"), None);
    }

    #[test]
    fn every_truncation_and_byte_change_is_survived() {
        let whole = std::fs::read("/proc/self/exe").unwrap();
        let head = &whole[..whole.len().min(1024)];
        for length in 0..head.len() {
            parsed(&head[..length]);
        }
        for position in 0..64 {
            for value in [0, 1, 0x7f, 0xff] {
                let mut hostile = head.to_vec();
                hostile[position] = value;
                parsed(&hostile);
            }
        }
    }
}
