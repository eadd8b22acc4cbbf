// SPDX-License-Identifier: GPL-2.0
//! Raw `bpf()`: programs and a hash of sockets, without a library.

use crate::errno::{cvt, R};
use crate::fd::Fd;

const MAP_CREATE: i64 = 0;
const MAP_UPDATE: i64 = 2;
const PROG_LOAD: i64 = 5;
const PROG_ATTACH: i64 = 8;
const RAW_TRACEPOINT_OPEN: i64 = 17;
const SOCKHASH: u32 = 18;
const SK_SKB: u32 = 14;
const STREAM_VERDICT: u32 = 5;

/// Calls `bpf()`; `words` are the beginning of `union bpf_attr`.
fn bpf(command: i64, words: &[u32]) -> R<i64> {
    let len = size_of_val(words);
    // SAFETY: The kernel reads `len` bytes.
    cvt(unsafe { libc::syscall(libc::SYS_bpf, command, words.as_ptr(), len) })
}

fn halves(address: usize) -> [u32; 2] {
    [address as u32, (address as u64 >> 32) as u32]
}

/// Loads a program of a type, to be attached as `attach` says (0: the type does not ask).
pub fn load(kind: u32, attach: u32, code: &[u64]) -> R<Fd> {
    let license = c"GPL";
    let mut words = vec![kind, code.len() as u32];
    words.extend(halves(code.as_ptr() as usize));
    words.extend(halves(license.as_ptr() as usize));
    // Log, version, flags, name, interface.
    words.extend([0; 11]);
    words.push(attach);
    bpf(PROG_LOAD, &words).map(|fd| Fd::new(fd as i32))
}

/// Has a program asked for each call of a security module's function, by the number of its type, until what
/// is returned is closed.
pub fn lsm(function: u32, code: &[u64]) -> R<Fd> {
    const LSM: u32 = 29;
    const LSM_MAC: u32 = 27;
    let license = c"GPL";
    let mut words = vec![LSM, code.len() as u32];
    words.extend(halves(code.as_ptr() as usize));
    words.extend(halves(license.as_ptr() as usize));
    words.extend([0; 11]);
    words.push(LSM_MAC);
    // Type information of our own, of functions, of lines; then what it is attached to.
    words.extend([0; 9]);
    words.push(function);
    let program = bpf(PROG_LOAD, &words).map(|fd| Fd::new(fd as i32))?;
    let open = [0, 0, program.raw() as u32, 0];
    bpf(RAW_TRACEPOINT_OPEN, &open).map(|fd| Fd::new(fd as i32))
}

/// Attaches a program to a map or a cgroup.
pub fn attach(target: i32, program: &Fd, way: u32) -> R<()> {
    bpf(PROG_ATTACH, &[target as u32, program.raw() as u32, way, 0]).map(drop)
}

/// A hash of sockets with a program.
#[derive(Debug)]
pub struct Sockhash {
    map: Fd,
    key: usize,
    program: Option<Fd>,
}

impl Sockhash {
    /// Makes one with room for `entries` and keys of `key` bytes, without a program.
    pub fn empty(key: usize, entries: u32) -> R<Self> {
        let words = [SOCKHASH, key as u32, 4, entries, 0, 0, 0, 0];
        let map = Fd::new(bpf(MAP_CREATE, &words)? as i32);
        Ok(Self {
            map,
            key,
            program: None,
        })
    }

    /// Makes one with the program "return SK_PASS" for what arrives at its sockets.
    pub fn new() -> R<Self> {
        let mut this = Self::empty(4, 8)?;
        this.run(SK_SKB, STREAM_VERDICT, &[0x0000_0001_0000_00b7, 0x95])?;
        Ok(this)
    }

    /// Gives its sockets a program; those that are put into it later have it.
    pub fn run(&mut self, kind: u32, way: u32, code: &[u64]) -> R<()> {
        let program = load(kind, 0, code)?;
        attach(self.map.raw(), &program, way)?;
        self.program = Some(program);
        Ok(())
    }

    /// Its descriptor, for programs that name it.
    pub fn raw(&self) -> i32 {
        self.map.raw()
    }

    /// Puts a socket into it. Of keys of four bytes.
    pub fn put(&self, key: u32, socket: &Fd) -> R<i64> {
        self.put_by(&key.to_ne_bytes(), socket)
    }

    /// Puts a socket into it.
    pub fn put_by(&self, key: &[u8], socket: &Fd) -> R<i64> {
        assert_eq!(key.len(), self.key, "the map's keys");
        let value = socket.raw() as u32;
        let mut words = vec![self.map.raw() as u32, 0];
        words.extend(halves(key.as_ptr() as usize));
        words.extend(halves(&raw const value as usize));
        words.extend([0, 0]);
        bpf(MAP_UPDATE, &words)
    }
}
