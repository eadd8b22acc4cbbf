// SPDX-License-Identifier: GPL-2.0
//! The commands that ask the kernel: exit codes and messages, on kernels with and without SMC.

#![allow(clippy::disallowed_macros)]

use std::process::{Command, Output};

fn rsmc(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rsmc"))
        .args(arguments)
        .output()
        .unwrap()
}

fn kernel_has_smc() -> bool {
    std::fs::read_to_string("/proc/net/protocols")
        .unwrap()
        .contains("SMC")
}

#[test]
fn without_smc_one_line_says_what_to_load() {
    if kernel_has_smc() {
        eprintln!("skipped: this kernel has SMC");
        return;
    }
    for arguments in [
        &["ss"][..],
        &["ss", "--json"],
        &["why"],
        &["why", "10.0.0.1"],
        &["why", "--probe", "80", "10.0.0.1"],
        &["link"],
        &["dev"],
        &["top"],
        &["top", "--json"],
        &["stats"],
        &["stats", "reset"],
        &["stats", "--prometheus"],
        &["ueid"],
        &["ueid", "add", "A"],
        &["pnet"],
        &["pnet", "add", "A", "-I", "lo"],
    ] {
        let output = rsmc(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {said}");
        assert!(
            said.contains("neither rsmc nor smc is loaded (") && said.lines().count() == 1,
            "{said}"
        );
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn wrong_usage_is_2() {
    for arguments in [
        &[][..],
        &["nothing"],
        &["ss", "-a", "-l"],
        &["ss", "--state", "SLEEPY"],
        &["ss", "--mode", "udp"],
        &["ss", "--port", "65536"],
        &["why", "not-an-address"],
        &["ueid", "add", "a_b"],
        &["pnet", "add", "A"],
        &["pnet", "add", "A", "-I", "lo", "-P", "1"],
        &["pnet", "add", "A", "-D", "rxe0", "-P", "3"],
        &["pnet", "del", "A-B"],
        &["completion", "tcsh"],
        &["completion", "bash", "/tmp", "more"],
        &["ss", "--addr", "10.0.0.0/33"],
        &["ss", "--watch=0"],
        &["ss", "--count", "3"],
        &["ss", "--reason", "NOTHING"],
        &["stats", "--json", "--prometheus"],
        &["stats", "--count", "3"],
        &["stats", "restart"],
        &["man"],
        &["enable"],
        &["disable"],
        &["enable", "a/b"],
        &["enable", "ssh.socket"],
        &["enable", "--all-on-this-host", "a"],
        &["enable", "--yes", "a"],
        &["enable", "--root", "/nonexistent", "a"],
        &["enable", "--root", "/tmp", "--restart", "a"],
        &["run", "--scope", "--strict", "true"],
        &["policy", "load", "a", "b"],
    ] {
        let output = rsmc(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn every_command_has_help_and_shells_have_completion() {
    for command in [
        "run",
        "ss",
        "link",
        "dev",
        "why",
        "stats",
        "ueid",
        "pnet",
        "policy",
        "enable",
        "disable",
        "up",
        "top",
        "report",
        "completion",
        "man",
    ] {
        let output = rsmc(&[command, "--help"]);
        assert_eq!(output.status.code(), Some(0));
        assert!(output.stdout.len() > 100, "{command}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let output = rsmc(&["completion", shell]);
        assert_eq!(output.status.code(), Some(0));
        assert!(
            String::from_utf8_lossy(&output.stdout).contains("listening"),
            "{shell}"
        );
    }
}
