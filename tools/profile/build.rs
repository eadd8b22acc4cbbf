// SPDX-License-Identifier: GPL-2.0
//! `QEMU_PLUGIN_API`: the version of QEMU's plugin interface, 1 if not told. From 3 on an
//! instruction's bytes are copied out instead of pointed to.

fn main() {
    println!("cargo::rerun-if-env-changed=QEMU_PLUGIN_API");
    println!("cargo::rustc-check-cfg=cfg(copied)");
    let version = std::env::var("QEMU_PLUGIN_API").ok();
    if version.and_then(|v| v.parse().ok()).unwrap_or(1) >= 3 {
        println!("cargo::rustc-cfg=copied");
    }
}
