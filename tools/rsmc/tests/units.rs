// SPDX-License-Identifier: GPL-2.0
//! systemd has nothing against the units that come with this program.

#![allow(clippy::disallowed_macros)]

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

/// What `systemd-analyze verify` says about a unit of this text; `None` without that program.
fn verified(name: &str, text: &str) -> Option<String> {
    let at = std::env::temp_dir().join(format!("rsmc-verify-{}", std::process::id()));
    fs::create_dir_all(&at).unwrap();
    let file = at.join(name);
    fs::write(&file, text).unwrap();
    let output = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&file)
        .output();
    fs::remove_file(file).unwrap();
    match output {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        output => Some(String::from_utf8_lossy(&output.unwrap().stderr).into_owned()),
    }
}

#[test]
fn the_boot_service_is_as_systemd_wants_it() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../systemd/rsmc.service");
    let text = fs::read_to_string(path).unwrap();
    let text = text.replace("/usr/local/bin/rsmc", env!("CARGO_BIN_EXE_rsmc"));
    let Some(said) = verified("rsmc.service", &text) else {
        eprintln!("skipped: no systemd-analyze here");
        return;
    };
    let ours = |said: &str| said.lines().filter(|line| line.contains("rsmc")).count();
    assert_eq!(ours(&said), 0, "{said}");
    // It would have said so.
    let said = verified("rsmc.service", &text.replace("UMask=", "Umask=")).unwrap();
    assert_eq!(ours(&said), 1, "{said}");
}
