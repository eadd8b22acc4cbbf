// SPDX-License-Identifier: GPL-2.0
//! The part of QEMU's plugin interface that is used, and what QEMU calls.

use crate::count::{self, Block};
use crate::owner;
use std::ffi::{c_char, c_int, c_uint, c_void, CStr};

/// A block being translated; belongs to QEMU.
#[repr(C)]
pub struct Tb(c_void);
/// An instruction of such a block.
#[repr(C)]
pub struct Insn(c_void);

type Translated = unsafe extern "C" fn(id: u64, tb: *mut Tb);
type Executed = unsafe extern "C" fn(vcpu: c_uint, data: *mut c_void);
type Accessed = unsafe extern "C" fn(vcpu: c_uint, info: u32, at: u64, data: *mut c_void);

/// `QEMU_PLUGIN_CB_NO_REGS`.
const NO_REGS: c_int = 0;
/// `QEMU_PLUGIN_MEM_RW`. QEMU 7.2 takes every access for a store when it is asked for one kind only:
/// it then leaves out returns, and tells of what an indirect call reads.
const READ_WRITE: c_int = 3;
/// `xchg bx, bx`.
const MARK: [u8; 3] = [0x66, 0x87, 0xdb];

#[allow(improper_ctypes)]
unsafe extern "C" {
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: u64, f: Translated);
    fn qemu_plugin_register_vcpu_tb_exec_cb(
        tb: *mut Tb,
        f: Executed,
        flags: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_insn_exec_cb(
        insn: *mut Insn,
        f: Executed,
        flags: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_mem_cb(
        insn: *mut Insn,
        f: Accessed,
        flags: c_int,
        rw: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_mem_is_store(info: u32) -> bool;
    fn qemu_plugin_tb_n_insns(tb: *const Tb) -> usize;
    fn qemu_plugin_tb_vaddr(tb: *const Tb) -> u64;
    fn qemu_plugin_tb_get_insn(tb: *const Tb, at: usize) -> *mut Insn;
    fn qemu_plugin_insn_size(insn: *const Insn) -> usize;
    #[cfg(not(copied))]
    fn qemu_plugin_insn_data(insn: *const Insn) -> *const c_void;
    #[cfg(copied)]
    fn qemu_plugin_insn_data(insn: *const Insn, to: *mut c_void, len: usize) -> usize;
}

/// The version of the interface that this plugin was built for.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = if cfg!(copied) { 4 } else { 1 };

/// The longest instruction.
const LONGEST: usize = 15;

/// Returns the bytes of an instruction, followed by zeros.
///
/// # Safety
///
/// `insn` is an instruction of the block that QEMU is translating.
unsafe fn bytes(insn: *const Insn) -> [u8; LONGEST] {
    let mut bytes = [0u8; LONGEST];
    // SAFETY: as the caller promises.
    let size = unsafe { qemu_plugin_insn_size(insn) }.min(LONGEST);
    #[cfg(not(copied))]
    // SAFETY: the pointer is good for as many bytes as the instruction has.
    unsafe {
        let from = qemu_plugin_insn_data(insn).cast();
        std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), size);
    }
    #[cfg(copied)]
    // SAFETY: QEMU writes no more than it is told there is room for.
    unsafe {
        qemu_plugin_insn_data(insn, bytes.as_mut_ptr().cast(), size);
    }
    bytes
}

/// Effect of an instruction on the stack of calls.
#[derive(PartialEq, Eq)]
enum Flow {
    Call,
    Return,
    Other,
}

fn flow(bytes: &[u8]) -> Flow {
    let prefix = |b: &u8| matches!(b, 0x66 | 0x2e | 0x3e | 0xf2 | 0xf3 | 0x40..=0x4f);
    let mut rest = bytes.iter().skip_while(|b| prefix(b));
    match (rest.next(), rest.next()) {
        (Some(0xe8), _) => Flow::Call,
        // The register field of ModRM says which instruction of its group it is.
        (Some(0xff), Some(modrm)) if (modrm >> 3) & 7 == 2 => Flow::Call,
        (Some(0xc2 | 0xc3), _) => Flow::Return,
        _ => Flow::Other,
    }
}

/// Has calls and returns of the kernel followed; either one ends a block.
///
/// # Safety
///
/// `insn` is the last instruction of the block that QEMU is translating.
unsafe fn follow(insn: *mut Insn) {
    // SAFETY: as the caller promises.
    let flow = flow(&unsafe { bytes(insn) });
    let f: Accessed = match flow {
        Flow::Call => called,
        Flow::Return => returned,
        Flow::Other => return,
    };
    let none = std::ptr::null_mut();
    // SAFETY: as above; nothing is passed.
    unsafe { qemu_plugin_register_vcpu_mem_cb(insn, f, NO_REGS, READ_WRITE, none) };
}

unsafe extern "C" fn translated(_id: u64, tb: *mut Tb) {
    // SAFETY: `tb` and its instructions are valid during this call.
    let (at, length) = unsafe { (qemu_plugin_tb_vaddr(tb), qemu_plugin_tb_n_insns(tb)) };
    let block = count::block(at, length as u64);
    let data = std::ptr::from_ref(block).cast_mut().cast();
    // SAFETY: as above; the counter lives as long as the process.
    unsafe { qemu_plugin_register_vcpu_tb_exec_cb(tb, executed, NO_REGS, data) };
    for i in 0..length {
        // SAFETY: as above.
        let insn = unsafe { qemu_plugin_tb_get_insn(tb, i) };
        // SAFETY: as above.
        if unsafe { bytes(insn) }.starts_with(&MARK) {
            // SAFETY: as above; nothing is passed.
            unsafe {
                qemu_plugin_register_vcpu_insn_exec_cb(insn, marked, NO_REGS, std::ptr::null_mut());
            };
        }
        if i + 1 == length && at >> 47 != 0 && count::has_owners() {
            // SAFETY: as above.
            unsafe { follow(insn) };
        }
    }
}

unsafe extern "C" fn executed(_vcpu: c_uint, data: *mut c_void) {
    // SAFETY: it is the pointer made in `translated`, to something that is never freed.
    let block = unsafe { &*data.cast::<Block>() };
    block.executed();
}

unsafe extern "C" fn marked(_vcpu: c_uint, _data: *mut c_void) {
    count::mark();
}

unsafe extern "C" fn called(_vcpu: c_uint, info: u32, at: u64, _data: *mut c_void) {
    // An indirect call also reads where it goes to.
    // SAFETY: it is what QEMU has given us.
    if unsafe { qemu_plugin_mem_is_store(info) } {
        owner::called(at);
    }
}

unsafe extern "C" fn returned(_vcpu: c_uint, _info: u32, at: u64, _data: *mut c_void) {
    owner::returned(at);
}

/// Called by QEMU when it has loaded the plugin.
///
/// # Safety
///
/// Only QEMU may call it; `argv` has `argc` strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: u64,
    _info: *const c_void,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    for i in 0..usize::try_from(argc).unwrap_or(0) {
        // SAFETY: QEMU's promise.
        let word = unsafe { CStr::from_ptr(*argv.add(i)) }.to_string_lossy();
        if let Some(file) = word.strip_prefix("out=") {
            count::write_to(file);
        } else if let Some(file) = word.strip_prefix("roles=") {
            count::roles_in(file);
        }
    }
    // SAFETY: the identity is the one given to us.
    unsafe { qemu_plugin_register_vcpu_tb_trans_cb(id, translated) };
    0
}
