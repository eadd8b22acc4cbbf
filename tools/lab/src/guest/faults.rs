// SPDX-License-Identifier: GPL-2.0

//! Texts that a kernel prints when something is wrong.

/// Texts that fail a run wherever they stand in a console line.
const REPORTS: &[&str] = &[
    "BUG:",
    "WARNING:",
    "kernel BUG at",
    "Oops:",
    "Oops -",
    "Kernel panic",
    "general protection fault",
    "unable to handle",
    "Unable to handle",
    "stack guard page was hit",
    "Kernel mode fault",
    "Segfault with no mm",
    "scheduling while atomic",
    "sleeping function called",
    "exited with preempt_count",
    "exited with irqs disabled",
    "huh, entered softirq",
    "NOHZ tick-stop error",
    "KASAN:",
    "KCSAN:",
    "KFENCE:",
    "UBSAN:",
    "ODEBUG:",
    "refcount_t:",
    "possible circular locking",
    "possible recursive locking",
    "possible irq lock inversion",
    "inconsistent lock state",
    "suspicious RCU usage",
    "bad unlock balance",
    "held lock freed",
    "still has locks held",
    "turning off the locking correctness validator",
    "rcu: INFO:",
    "self-detected stall",
    "soft lockup",
    "hard LOCKUP",
    "blocked for more than",
    "workqueue lockup",
    "list_add corruption",
    "list_del corruption",
    "Bad page state",
    "bad page map",
    "Redzone overwritten",
    "Poison overwritten",
    "Object already free",
    "Objects remaining in",
    "Objects remaining on",
    "unregister_netdevice: waiting for",
    "ref_tracker:",
    "leaked",
    "new suspected memory leaks",
    "unreferenced object",
    "DMA-API:",
    "kobject_add_internal failed",
    "rust_kernel: panicked",
    "rust_kernel:   panicked",
    "nobody cared",
    "scheduling from the idle thread",
    "Disabling lock debugging due to",
];

/// Lines that contain such a text and mean nothing.
const HARMLESS: &[&str] = &[
    // A fault injected into the tracker's own bookkeeping.
    "ref_tracker: memory allocation failure",
    // Our own marks, which carry names of tests.
    "rsmc-lab:",
    // The module is not part of the kernel's own build; nothing else taints.
    "out-of-tree module taints kernel",
    // Every unsigned module, where the kernel could check signatures.
    "module verification failed",
    // UML's PCI bus, which INFINIBAND needs to exist, has no devices.
    "arch/um/drivers/virtio_pcidev.c",
    // What dma-debug says of itself at boot, and when its tables grow.
    "DMA-API: preallocated",
    "DMA-API: debugging enabled by kernel config",
    "DMA-API: dma_debug_entry pool grown",
    // A boot parameter echoed.
    "Kernel command line:",
    "Command line:",
];

/// True if a console line reports a fault.
pub fn is_report(line: &str) -> bool {
    REPORTS.iter().any(|text| line.contains(text))
        && !HARMLESS.iter().any(|text| line.contains(text))
}

/// True if nothing but the guest's end can follow.
pub fn is_fatal(line: &str) -> bool {
    line.contains("Kernel panic - not syncing") || line.contains("Attempted to kill init")
}

/// True if the first fault on a console is the emulator's: a virtual CPU ran into the breakpoint behind which
/// another one was changing an instruction (ftrace, static keys), and found nobody who knows of it.
///
/// A processor cannot: the kernel takes the breakpoint away when all CPUs have answered an interrupt. QEMU can
/// with more than one thread. The proof is in the report: where the breakpoint was hit there is none any more. A jump
/// into what compilers fill gaps with shows breakpoints.
pub fn is_of_patching(console: &str) -> bool {
    let mut lines = console.lines().skip_while(|line| !is_report(line));
    if !lines.next().is_some_and(|line| line.contains("Oops: int3")) {
        return false;
    }
    let code = lines.find_map(|line| line.split_once("Code: "));
    code.and_then(|(_, bytes)| bytes.split_once('<'))
        .and_then(|(before, _)| before.split_whitespace().next_back())
        .is_some_and(|byte| byte != "cc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patching_is_told_from_a_breakpoint_that_is_there() {
        let console = |first: &str, code: &str| {
            format!("[    1.0] x\n[    1.1] {first}: 0000 [#1] SMP\n[    1.2] RIP: 0010:f+0x5/0x10\n[    1.3] Code: 90 {code} 66 90\n")
        };
        assert!(is_of_patching(&console("Oops: int3", "d6 0f <1f> 44")));
        assert!(!is_of_patching(&console("Oops: int3", "c3 cc <cc> cc")));
        assert!(!is_of_patching(&console(
            "Oops: general protection fault",
            "d6 0f <1f>"
        )));
        let later = format!("[    1.0] BUG: x\n{}", console("Oops: int3", "d6 0f <1f>"));
        assert!(!is_of_patching(&later));
        assert!(!is_of_patching("[    1.0] Oops: int3: 0000 [#1] SMP\n"));
    }

    #[test]
    fn reports_are_found() {
        for line in [
            "[    1.0] WARNING: CPU: 0 PID: 1 at net/core/sock.c:1 x+0x1/0x2",
            "[    1.0] BUG: KASAN: slab-use-after-free in x",
            "[    1.0] INFO: task a:1 blocked for more than 120 seconds.",
            "[    1.0] WARNING: possible circular locking dependency detected",
            "[    1.0] rsmc: 3 sockets leaked",
            "[    1.0] DMA-API: model-card card0: device driver maps memory from stack",
            // Of locks that sleep where nothing may, above all with PREEMPT_RT.
            "[    1.0] BUG: scheduling while atomic: a/1/0x00000002",
            "[    1.0] BUG: sleeping function called from invalid context at x.c:48",
            "[    1.0] [ BUG: Invalid wait context ]",
            "[    1.0] WARNING: kernel/locking/rtmutex.c:1 at x+0x1/0x2",
            "[    1.0] BUG: workqueue leaked atomic, lock or RCU: kworker/0:1[1]",
            "[    1.0] softirq: huh, entered softirq 3 NET_RX x with preempt_count 00000100, exited with 00000101?",
            "[    1.0] NOHZ tick-stop error: local softirq work is pending, handler #08!!!",
            "[    1.0] note: a[1] exited with preempt_count 1",
        ] {
            assert!(is_report(line), "{line}");
        }
    }

    #[test]
    fn ordinary_lines_are_not() {
        for line in [
            "[    1.0] rsmc: loading out-of-tree module taints kernel.",
            "[    1.0] rsmc-lab: begin leaked.BUG: test",
            "[    1.0] Warning: unable to open an initial console.",
            "[    1.0] Kernel command line: oops=panic",
            "[    1.0] DMA-API: debugging enabled by kernel config",
        ] {
            assert!(!is_report(line), "{line}");
        }
    }
}
