// SPDX-License-Identifier: GPL-2.0
//! `rsmc report`: what a bug report needs, in one file.
//!
//! Every part is collected on its own; one that cannot be is a line in README.txt and nothing more.

mod files;

use crate::cli::{ReportArgs, SsArgs, WhyArgs};
use crate::error::{Error, Result};
use crate::{clock, dev, fallback, hardware, link, pnet, ss, stats, system, ueid, visible, why};
use serde::Serialize;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// A file of the report: its name and how it is made.
type Part = (&'static str, fn() -> Result<Vec<u8>>);

const PARTS: [Part; 17] = [
    ("versions.txt", files::versions),
    ("module.txt", files::module),
    ("system.json", || json(&system::collect()?)),
    ("sysctls.txt", files::sysctls),
    ("devices.json", || json(&dev::collect()?)),
    ("rdma.txt", files::rdma),
    ("hardware.txt", checklist),
    ("interfaces.txt", files::interfaces),
    ("routes.txt", files::routes),
    ("links.json", || json(&link::collect()?)),
    ("sockets.json", sockets),
    ("stats.json", || json(&stats::Statistics::collect()?)),
    ("fallback.txt", || files::one(fallback::FILE)),
    ("why.txt", reasons),
    ("pnet.json", || json(&pnet::collect(None)?)),
    ("ueid.json", || json(&ueid::collect()?)),
    ("kernel-log.txt", files::kernel_log),
];

/// Collects the report.
///
/// # Errors
/// Errors of writing the report; of the list of hardware that there is no usable port.
pub fn run(args: &ReportArgs, out: &mut dyn Write) -> Result<()> {
    if args.hardware {
        return hardware::run(args.json, out);
    }
    let now = clock::now();
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let name = name(&host, now);
    let bytes = archive(&name, now)?;
    if args
        .output
        .as_ref()
        .is_some_and(|path| path.as_os_str() == "-")
    {
        if visible::is_terminal() {
            return Err(Error::Usage("an archive is nothing for a terminal".into()));
        }
        return Ok(visible::write_raw(&bytes)?);
    }
    let path = match &args.output {
        Some(path) => path.clone(),
        None => PathBuf::from(format!("{name}.tar")),
    };
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let written = options
        .open(&path)
        .and_then(|mut file| file.write_all(&bytes));
    written.map_err(|error| Error::at(&path, error))?;
    writeln!(out, "{}", path.display())?;
    Ok(())
}

/// The name of the directory in the archive.
fn name(host: &str, now: u64) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    let host: String = host
        .chars()
        .filter(|letter| plain(*letter))
        .take(40)
        .collect();
    let [year, month, day, hour, minute, second] = clock::parts(now);
    format!("rsmc-report-{host}-{year}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
}

fn archive(name: &str, now: u64) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut notes = Vec::new();
    for (file, make) in PARTS {
        match make() {
            Ok(content) => {
                let text = String::from_utf8_lossy(&content);
                let shown = visible::lines(&text);
                add(
                    &mut archive,
                    &format!("{name}/{file}"),
                    now,
                    shown.as_bytes(),
                )?;
            }
            Err(error) => notes.push(format!("{file}: {error}")),
        }
    }
    let readme = readme(now, &notes);
    add(
        &mut archive,
        &format!("{name}/README.txt"),
        now,
        visible::lines(&readme).as_bytes(),
    )?;
    archive.into_inner()
}

/// Adds a file of user 0 that all may read.
fn add(
    archive: &mut tar::Builder<Vec<u8>>,
    name: &str,
    now: u64,
    content: &[u8],
) -> io::Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(now);
    header.set_size(content.len() as u64);
    archive.append_data(&mut header, name, content)
}

fn readme(now: u64, notes: &[String]) -> String {
    let mut text = format!(
        "Made by `rsmc report` {} at {} UTC, by user {}.\n\n\
         It holds what the kernel says of SMC in one network namespace, and names and numbers of the\n\
         processes with SMC sockets. Addresses and host names are in it; the data of connections,\n\
         arguments and environments of programs are not.\n\n",
        env!("CARGO_PKG_VERSION"),
        clock::text(now),
        rustix::process::geteuid().as_raw()
    );
    if notes.is_empty() {
        text.push_str("Nothing is missing.\n");
        return text;
    }
    text.push_str("Missing, and why:\n");
    for note in notes {
        text.push_str(&format!("  {note}\n"));
    }
    text
}

fn json(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(value)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// All sockets, with numbers for users.
fn sockets() -> Result<Vec<u8>> {
    let args = SsArgs {
        all: true,
        numeric: true,
        ..SsArgs::default()
    };
    json(&ss::collect(&args)?)
}

fn checklist() -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    hardware::tell(&hardware::collect(), &mut bytes)?;
    Ok(bytes)
}

fn reasons() -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let args = WhyArgs {
        forget: false,
        target: None,
        probe: None,
        json: false,
    };
    why::run(&args, &mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe() {
        assert_eq!(
            name("../db 1.example\n", 0),
            "rsmc-report-db1example-19700101-000000"
        );
    }

    #[test]
    fn what_is_missing_is_said() {
        assert!(readme(0, &[]).contains("Nothing is missing."));
        let text = readme(0, &["stats.json: no SMC".into()]);
        assert!(
            text.ends_with("Missing, and why:\n  stats.json: no SMC\n"),
            "{text}"
        );
    }

    #[test]
    fn a_report_of_this_machine() {
        let bytes = archive("x", 7).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains("x/README.txt\0") && text.contains("x/versions.txt\0"));
        assert!(text.contains("Made by `rsmc report`"));
        // Nothing of the environment, which every process has.
        let path = std::env::var("PATH").unwrap();
        assert!(!text.contains(&path));
    }

    #[test]
    fn tar_reads_it() {
        use std::process::{Command, Stdio};
        let mut archive = tar::Builder::new(Vec::new());
        for (name, content) in [("a/one.txt", &b"first\n"[..]), ("a/two.txt", &[b'x'; 512])] {
            add(&mut archive, name, 1_700_000_000, content).unwrap();
        }
        let bytes = archive.into_inner().unwrap();
        assert_eq!(bytes.len(), 512 * (2 + 2 + 2));
        let tar = Command::new("tar")
            .args(["-xOf", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut tar) = tar else {
            eprintln!("skipped: no tar here");
            return;
        };
        tar.stdin.take().unwrap().write_all(&bytes).unwrap();
        let output = tar.wait_with_output().unwrap();
        assert!(output.status.success());
        assert_eq!(output.stdout, [&b"first\n"[..], &[b'x'; 512]].concat());
    }
}
