// SPDX-License-Identifier: GPL-2.0
//! Limits of a device, which only verbs tell: by `ibv_devinfo -v`, where it is installed.

use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Command, Stdio};

/// Limits that are of interest, as `ibv_devinfo` calls them.
pub const NAMES: [&str; 8] = [
    "max_mr_size",
    "page_size_cap",
    "max_qp",
    "max_qp_wr",
    "max_sge",
    "max_cqe",
    "max_mr",
    "active_mtu",
];

/// Longest output read, in bytes; a device with many ports and GIDs has some ten thousand.
const LONGEST: u64 = 1 << 20;

/// Limits by name.
pub type Limits = BTreeMap<&'static str, String>;

/// Asks the program; its error in words otherwise.
///
/// # Errors
/// A line for the user.
pub fn of(device: &str) -> Result<Limits, String> {
    let mut command = Command::new("ibv_devinfo");
    command.args(["-v", "-d", device]).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command
        .spawn()
        .map_err(|error| format!("ibv_devinfo: {error}"))?;
    let mut text = String::new();
    if let Some(out) = child.stdout.take() {
        // What is no text, or too long, is cut; the rest of it makes the program end.
        let _ = out.take(LONGEST).read_to_string(&mut text);
    }
    let status = child
        .wait()
        .map_err(|error| format!("ibv_devinfo: {error}"))?;
    let limits = read(&text);
    match limits.is_empty() {
        true => Err(format!("ibv_devinfo says nothing of it ({status})")),
        false => Ok(limits),
    }
}

/// Reads lines `name: value`; the first of each name counts.
fn read(text: &str) -> Limits {
    let mut limits = Limits::new();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        if let Some(name) = NAMES.iter().find(|known| **known == name.trim()) {
            limits
                .entry(*name)
                .or_insert_with(|| value.trim().to_string());
        }
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_the_program() {
        let limits = read(
            "hca_id:\trxe0\n\tmax_mr_size:\t\t\t0xffffffffffffffff\n\tmax_qp_wr:\t\t\t1048576\n\
             \tmax_sge:\t\t\t32\n\t\tport:\t1\n\t\t\tactive_mtu:\t\t1024 (3)\n\t\tport:\t2\n\t\t\tactive_mtu:\t4096 (5)\n",
        );
        assert_eq!(limits["max_qp_wr"], "1048576");
        assert_eq!(limits["active_mtu"], "1024 (3)");
        assert_eq!(limits.len(), 4);
        assert!(read("Failed to get IB devices list").is_empty());
    }
}
