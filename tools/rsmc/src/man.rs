// SPDX-License-Identifier: GPL-2.0
//! `rsmc man`: manual pages, those of commands made from the definition of the command line, the others written by hand.

use crate::cli::{Cli, ManArgs};
use crate::compat;
use crate::error::{Error, Result};
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Pages written by hand: name, section, text.
const WRITTEN: [(&str, u8, &str); 2] = [
    ("af_smc", 7, include_str!("../man/af_smc.7")),
    ("policy.conf", 5, include_str!("../man/policy.conf.5")),
];

/// Writes a page for each command, and those of other sections: beside a directory called `man1` in their own.
///
/// # Errors
/// Errors of writing the pages.
pub fn run(args: &ManArgs) -> Result<()> {
    let mut top = Cli::command().disable_help_subcommand(true);
    top.build();
    let version = top.get_version().unwrap_or_default().to_string();
    let manual = format!("rsmc {version}");
    page(&args.directory, &top, "rsmc", &manual)?;
    for (command, usage) in compat::manual() {
        alias(&args.directory, command, usage.as_deref(), &manual)?;
    }
    for (name, section, text) in WRITTEN {
        let directory = place(&args.directory, section)?;
        let path = directory.join(format!("{name}.{section}"));
        let text = text.replace("@VERSION@", &version);
        fs::write(&path, text).map_err(|error| Error::at(&path, error))?;
    }
    Ok(())
}

/// The directory for pages of a section.
fn place(directory: &Path, section: u8) -> Result<PathBuf> {
    if !directory.ends_with("man1") {
        return Ok(directory.to_path_buf());
    }
    let place = directory.with_file_name(format!("man{section}"));
    fs::create_dir_all(&place).map_err(|error| Error::at(&place, error))?;
    Ok(place)
}

/// Writes the page of a name of smc-tools; `usage` is printed as it is.
fn alias(directory: &Path, command: Command, usage: Option<&str>, manual: &str) -> Result<()> {
    let name = command.get_name().to_string();
    let command = command.disable_help_subcommand(true);
    let man = Man::new(command).source(manual).manual("SMC sockets");
    let mut text = Vec::new();
    man.render(&mut text)?;
    if let Some(usage) = usage {
        writeln!(text, ".SH USAGE\n.nf")?;
        for line in usage.lines() {
            // A full stop or apostrophe at the beginning would be a request of the formatter.
            let line = line.replace('\\', "\\e").replace('-', "\\-");
            writeln!(text, "\\&{line}")?;
        }
        writeln!(text, ".fi")?;
    }
    write!(
        text,
        ".SH NOTES\n\\fBrsmc\\fR, started under this name, does what the program of smc\\-tools does. \
         It has more of it under its own: see \\fBrsmc\\fR(1).\n"
    )?;
    let path = directory.join(format!("{name}.1"));
    fs::write(&path, text).map_err(|error| Error::at(&path, error))
}

/// Writes the page of a command and those of the commands below it.
fn page(directory: &Path, command: &Command, name: &str, manual: &str) -> Result<()> {
    for inner in command
        .get_subcommands()
        .filter(|inner| !inner.is_hide_set())
    {
        let name = format!("{name}-{}", inner.get_name());
        page(directory, inner, &name, manual)?;
    }
    // The page is named as manuals are, the synopsis has the words as they are typed.
    let typed = name.replace('-', " ");
    let command = command.clone().display_name(name).bin_name(typed);
    let man = Man::new(command).source(manual).manual("SMC sockets");
    let path = directory.join(format!("{name}.1"));
    let mut text = Vec::new();
    man.render(&mut text)?;
    fs::write(&path, text).map_err(|error| Error::at(&path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_for_each_command() {
        let directory = std::env::temp_dir().join(format!("rsmc-man-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let args = ManArgs {
            directory: directory.clone(),
        };
        run(&args).unwrap();
        let page = |name: &str| fs::read_to_string(directory.join(name)).unwrap();
        let top = page("rsmc.1");
        assert!(
            top.contains(".TH rsmc 1") && top.contains("rsmc\\-ss(1)"),
            "{top}"
        );
        assert!(top.contains("3 no SMC module is loaded"), "{top}");
        let ss = page("rsmc-ss.1");
        assert!(
            ss.contains("\\fBrsmc ss\\fR") && ss.contains("PEERNOSMC"),
            "{ss}"
        );
        assert!(page("rsmc-pnet-add.1").contains("interface"));
        let aliases = ["smcss", "smcr", "smcd", "smc_pnet", "smc_run", "smc_chk"];
        for alias in aliases {
            let text = page(&format!("{alias}.1"));
            let name = alias.replace('-', "\\-");
            assert!(
                text.contains(&format!(".TH {name} 1")) && text.contains("rsmc"),
                "{text}"
            );
            // The options are there, however they are read.
            assert!(text.contains("\\-v"), "{text}");
        }
        let family = page("af_smc.7");
        let version = concat!("rsmc ", env!("CARGO_PKG_VERSION"));
        assert!(family.contains(version) && !family.contains("@VERSION@"));
        assert!(page("policy.conf.5").contains(version));
        assert!(page("smcr.1").contains("link\\-show"));
        assert!(!page("smcd.1").contains("link\\-show"));
        // In a tree of manuals each section has its directory.
        let tree = directory.with_extension("tree");
        fs::create_dir_all(tree.join("man1")).unwrap();
        run(&ManArgs {
            directory: tree.join("man1"),
        })
        .unwrap();
        assert!(tree.join("man7/af_smc.7").exists() && tree.join("man5/policy.conf.5").exists());
        assert!(tree.join("man1/rsmc.1").exists() && !tree.join("man1/af_smc.7").exists());
        fs::remove_dir_all(&tree).unwrap();
        for entry in fs::read_dir(&directory).unwrap() {
            let text = fs::read_to_string(entry.unwrap().path()).unwrap();
            assert!(text.contains(".SH SYNOPSIS") && text.contains(".SH NAME"));
        }
        fs::remove_dir_all(&directory).unwrap();
        assert!(run(&args).is_err());
    }
}
