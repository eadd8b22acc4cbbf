// SPDX-License-Identifier: GPL-2.0
//! A BPF hash of sockets whose program lets everything pass.

use st::errno::{cvt, R};
use st::fd::Fd;

const MAP_CREATE: i64 = 0;
const MAP_UPDATE: i64 = 2;
const PROG_LOAD: i64 = 5;
const PROG_ATTACH: i64 = 8;
const SOCKHASH: u32 = 18;
const SK_SKB: u32 = 14;
const STREAM_VERDICT: u32 = 5;

/// `bpf()`; `words` are the beginning of `union bpf_attr`.
fn bpf(command: i64, words: &[u32]) -> R<i64> {
    let len = size_of_val(words);
    // SAFETY: The kernel reads `len` bytes.
    cvt(unsafe { libc::syscall(libc::SYS_bpf, command, words.as_ptr(), len) })
}

fn halves(address: usize) -> [u32; 2] {
    [address as u32, (address as u64 >> 32) as u32]
}

/// The map.
pub struct Sockhash {
    map: Fd,
    _program: Fd,
}

impl Sockhash {
    /// A map with the program "return SK_PASS" for what arrives at its sockets.
    pub fn new() -> R<Self> {
        let map = Fd::new(bpf(MAP_CREATE, &[SOCKHASH, 4, 4, 8, 0, 0, 0, 0])? as i32);
        let code: [u64; 2] = [0x0000_0001_0000_00b7, 0x95];
        let license = c"GPL";
        let mut words = vec![SK_SKB, code.len() as u32];
        words.extend(halves(code.as_ptr() as usize));
        words.extend(halves(license.as_ptr() as usize));
        words.extend([0; 12]);
        let program = Fd::new(bpf(PROG_LOAD, &words)? as i32);
        let fds = [map.raw() as u32, program.raw() as u32];
        bpf(PROG_ATTACH, &[fds[0], fds[1], STREAM_VERDICT, 0])?;
        Ok(Self {
            map,
            _program: program,
        })
    }

    /// Puts a socket into it.
    pub fn put(&self, key: u32, socket: &Fd) -> R<i64> {
        let value = socket.raw() as u32;
        let mut words = vec![self.map.raw() as u32, 0];
        words.extend(halves(&raw const key as usize));
        words.extend(halves(&raw const value as usize));
        words.extend([0, 0]);
        bpf(MAP_UPDATE, &words)
    }
}
