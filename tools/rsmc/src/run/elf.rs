// SPDX-License-Identifier: GPL-2.0
//! The little of ELF that tells whether `LD_PRELOAD` can reach a program.
//!
//! Reads headers of a file nobody vouches for: `object` checks every offset and count, and no more
//! than [`MAX_TABLE`] bytes of any table are read.

use object::elf::{FileHeader32, FileHeader64, DT_NULL, DT_SONAME, ELFMAG};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader, SectionTable};
use object::read::StringTable;
use object::{Endianness, ReadCache, ReadRef};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Longest header table or string that is read, in bytes.
pub const MAX_TABLE: u64 = 1 << 20;

/// Facts from a program's headers.
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

/// Reads `file` as ELF; `None` if it is not, or is damaged.
///
/// # Errors
/// Errors of reading the file's first bytes, except for a file that is too short.
pub fn read(file: &File) -> io::Result<Option<Elf>> {
    let mut ident = [0u8; 16];
    match file.read_exact_at(&mut ident, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let cache = ReadCache::new(file);
    Ok(match (ident.starts_with(&ELFMAG), ident[4]) {
        (true, 1) => parse::<FileHeader32<Endianness>>(Capped(&cache)).ok(),
        (true, 2) => parse::<FileHeader64<Endianness>>(Capped(&cache)).ok(),
        _ => None,
    })
}

fn parse<H: FileHeader<Endian = Endianness>>(data: Capped<'_>) -> object::Result<Elf> {
    let header = H::parse(data)?;
    let endian = header.endian()?;
    let mut elf = Elf {
        class: header.e_ident().class.0,
        machine: header.e_machine(endian).0,
        ..Elf::default()
    };
    for program in header.program_headers(endian, data)? {
        if let Some(name) = program.interpreter(endian, data)? {
            elf.interpreter = Some(String::from_utf8_lossy(name).into_owned());
        }
        if let Some(dynamic) = program.dynamic(endian, data)? {
            let mut tags = dynamic.iter().map(|entry| entry.d_tag(endian));
            let mut tags = tags.by_ref().take_while(|tag| *tag != DT_NULL);
            elf.is_library = tags.any(|tag| tag == DT_SONAME);
        }
    }
    // Section headers are optional: a stripped file loses a warning, nothing else.
    elf.is_go = has_section(header, data, b".go.buildinfo").unwrap_or(false);
    Ok(elf)
}

fn has_section<H: FileHeader<Endian = Endianness>>(
    header: &H,
    data: Capped<'_>,
    name: &[u8],
) -> object::Result<bool> {
    let endian = header.endian()?;
    let sections = header.section_headers(endian, data)?;
    let names = sections.get(header.shstrndx(endian, data)? as usize);
    // All names at once: through the file each would be a read of its own.
    let names = names.map_or(Ok(&[][..]), |names| names.data(endian, data))?;
    let names = StringTable::new(names, 0, names.len() as u64);
    let sections = SectionTable::<H, &[u8]>::new(sections, names);
    Ok(sections.section_by_name(endian, name).is_some())
}

/// A file of which nothing longer than [`MAX_TABLE`] is read at once.
#[derive(Clone, Copy)]
struct Capped<'a>(&'a ReadCache<&'a File>);

impl<'a> ReadRef<'a> for Capped<'a> {
    fn len(self) -> Result<u64, ()> {
        self.0.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        match size <= MAX_TABLE {
            true => self.0.read_bytes_at(offset, size),
            false => Err(()),
        }
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        self.0.read_bytes_at_until(range, delimiter)
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
    fn sections_have_names() {
        let file = File::open("/proc/self/exe").unwrap();
        let cache = ReadCache::new(&file);
        let header = FileHeader64::parse(Capped(&cache)).unwrap();
        assert!(has_section(header, Capped(&cache), b".text").unwrap());
        assert!(!has_section(header, Capped(&cache), b".go.buildinfo").unwrap());
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
