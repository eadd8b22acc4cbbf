// SPDX-License-Identifier: GPL-2.0
//! Raw `bpf()`: programs and a hash of sockets, without a library.

use crate::errno::{cvt, R};
use crate::fd::Fd;

const MAP_CREATE: i64 = 0;
const MAP_UPDATE: i64 = 2;
const PROG_LOAD: i64 = 5;
const PROG_ATTACH: i64 = 8;
const RAW_TRACEPOINT_OPEN: i64 = 17;
const PROG_DETACH: i64 = 9;
const MAP_LOOKUP: i64 = 1;
const ARRAY: u32 = 2;
const CGROUP_SKB: u32 = 8;
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

/// One instruction of a program: operation, registers, offset and number.
pub fn insn(code: u64, dst: u64, src: u64, off: i16, imm: i32) -> u64 {
    let tail = (u64::from(off as u16) << 16) | (u64::from(imm as u32) << 32);
    code | (dst << 8) | (src << 12) | tail
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

/// Takes a program of a cgroup off.
pub fn detach(target: i32, program: &Fd, way: u32) -> R<()> {
    bpf(PROG_DETACH, &[target as u32, program.raw() as u32, way, 0]).map(drop)
}

/// A program for the packets of a cgroup that lets all pass and counts their bytes.
#[derive(Debug)]
pub struct Counter {
    map: Fd,
    /// The program.
    pub program: Fd,
}

impl Counter {
    /// Loads it; `way` is where it is to be attached: 0 for packets that arrive, 1 for those that leave.
    pub fn new(way: u32) -> R<Self> {
        let map = Fd::new(bpf(MAP_CREATE, &[ARRAY, 4, 8, 1, 0, 0, 0, 0])? as i32);
        let code = [
            // r6 = skb->len; key 0 on the stack.
            insn(0x61, 6, 1, 0, 0),
            insn(0x62, 10, 0, -4, 0),
            insn(0xbf, 2, 10, 0, 0),
            insn(0x07, 2, 0, 0, -4),
            // r1 = the map; r0 = its value.
            insn(0x18, 1, 1, 0, map.raw()),
            0,
            insn(0x85, 0, 0, 0, 1),
            insn(0x15, 0, 0, 1, 0),
            // It grows by r6.
            insn(0xdb, 0, 6, 0, 0),
            insn(0xb7, 0, 0, 0, 1),
            insn(0x95, 0, 0, 0, 0),
        ];
        let program = load(CGROUP_SKB, way, &code)?;
        Ok(Self { map, program })
    }

    /// The bytes that it has seen, headers included.
    pub fn bytes(&self) -> R<u64> {
        let (key, mut value) = (0u32, 0u64);
        let mut words = vec![self.map.raw() as u32, 0];
        words.extend(halves(&raw const key as usize));
        words.extend(halves(&raw mut value as usize));
        words.extend([0, 0]);
        bpf(MAP_LOOKUP, &words)?;
        // SAFETY: The kernel has written it, which the compiler does not know.
        Ok(unsafe { std::ptr::read_volatile(&raw const value) })
    }
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
