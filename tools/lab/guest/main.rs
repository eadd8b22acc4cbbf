// SPDX-License-Identifier: GPL-2.0

//! Process 1 of the lab's guests, and the `rsmc-barrier` command.
//!
//! One static program, told apart by the name it is started under, so that it
//! works as `/init` of an initramfs or of a hostfs directory and from any
//! directory of the guest afterwards.

mod barrier;
mod mounts;
mod run;
mod serve;
mod wire;

use std::process::ExitCode;

fn main() -> ExitCode {
    let name = std::env::args().next().unwrap_or_default();
    if name.rsplit('/').next() == Some("rsmc-barrier") {
        return barrier::command();
    }
    if std::process::id() != 1 {
        eprintln!("lab-init is process 1 of the lab's guests; there is nothing to run here");
        return ExitCode::from(2);
    }
    if let Err(error) = mounts::set_up().and_then(|kind| serve::serve(&kind)) {
        // The console is all there is; the lab shows its last lines.
        println!("rsmc-lab: init failed: {error}");
    }
    mounts::power_off();
    ExitCode::FAILURE
}
