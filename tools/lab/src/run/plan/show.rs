// SPDX-License-Identifier: GPL-2.0

//! `lab plan`: the entries of the plan with all they say, one a line.

use super::{read, Side, Test};
use anyhow::Result;
use std::fmt;
use std::process::ExitCode;

/// Arguments of `lab plan`.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Only entries whose name contains one of these
    only: Vec<String>,
}

/// Prints the plan.
pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    let only = &arguments.only;
    for test in read()? {
        if only.is_empty() || only.iter().any(|text| test.name.contains(text)) {
            println!("{test}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a key with the words of a list, if there are any.
fn list(f: &mut fmt::Formatter<'_>, key: &str, words: &[String]) -> fmt::Result {
    match words.is_empty() {
        true => Ok(()),
        false => write!(f, "; {key} {}", words.join(",")),
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kernels: Vec<&str> = self.kernels.iter().map(|kind| kind.name()).collect();
        write!(f, "{}: {}", self.name, kernels.join(","))?;
        write!(f, "; {}; {} s", self.topology, self.timeout)?;
        let thorough: Vec<String> = self.thorough.iter().map(|k| k.name().to_owned()).collect();
        list(f, "thorough", &thorough)?;
        if self.module != super::rsmc() {
            write!(f, "; module {}", self.module)?;
        }
        if !self.boot.is_empty() {
            write!(f, "; boot {}", self.boot)?;
        }
        list(f, "cmdline", &self.cmdline)?;
        list(f, "needs", &self.needs)?;
        list(f, "kmod", &self.kmod)?;
        let suites: Vec<String> = self.suites.iter().map(ToString::to_string).collect();
        list(f, "suites", &suites)?;
        for (is, word) in [
            (self.rdma, "rdma"),
            (self.soft_roce, "soft_roce"),
            (self.private, "private"),
            (self.default_path, "default_path"),
            (self.reload, "reload"),
            (self.long, "long"),
        ] {
            if is {
                write!(f, "; {word}")?;
            }
        }
        match self.kills {
            Some(Side::Client) => write!(f, "; kills client")?,
            Some(Side::Server) => write!(f, "; kills server")?,
            None => (),
        }
        write!(f, "; {:?}", self.argv())
    }
}
