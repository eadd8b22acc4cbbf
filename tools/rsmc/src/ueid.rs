// SPDX-License-Identifier: GPL-2.0
//! `rsmc ueid`: enterprise ids of SMC version 2 (`SMC_GEN_NETLINK` commands 9 to 12).

use crate::cli::{UeidAction, UeidArgs};
use crate::error::{Error, Result};
use crate::netlink::genl::Family;
use crate::netlink::wire::{NLM_F_ACK, NLM_F_DUMP};
use crate::stats;
use rustix::io::Errno;
use std::io::Write;

const DUMP_UEID: u8 = 9;
const ADD_UEID: u8 = 10;
const REMOVE_UEID: u8 = 11;
const FLUSH_UEID: u8 = 12;
/// Attribute `SMC_NLA_EID_TABLE_ENTRY`: text.
const ENTRY: u16 = 1;
/// Characters of an EID on the wire.
const LENGTH: usize = 32;

/// Shows or changes the table.
///
/// # Errors
/// `NotThere` without the netlink family, `Usage` for an EID that cannot be one, or the kernel's.
pub fn run(args: &UeidArgs, out: &mut dyn Write) -> Result<()> {
    match &args.action {
        None => show(false, out),
        Some(UeidAction::Show { json }) => show(*json, out),
        Some(UeidAction::Add { eid }) => change(ADD_UEID, "adding the UEID", Some(&padded(eid)?)),
        Some(UeidAction::Del { eid }) => {
            change(REMOVE_UEID, "removing the UEID", Some(&padded(eid)?))
        }
        Some(UeidAction::Flush) => change(FLUSH_UEID, "removing all UEIDs", None),
    }
}

/// The table's UEIDs.
///
/// # Errors
/// `NotThere` without the netlink family, or the kernel's.
pub fn collect() -> Result<Vec<String>> {
    let mut family = stats::family()?;
    let request = family.command(DUMP_UEID, NLM_F_DUMP);
    let mut eids = Vec::new();
    for body in family
        .ask("listing UEIDs", &request)
        .map_err(stats::not_yet)?
    {
        for attribute in body.attributes()? {
            if attribute.kind == ENTRY {
                eids.push(attribute.text().trim_end().to_string());
            }
        }
    }
    Ok(eids)
}

fn show(json: bool, out: &mut dyn Write) -> Result<()> {
    let eids = collect()?;
    if json {
        serde_json::to_writer_pretty(&mut *out, &eids)?;
        writeln!(out)?;
    } else {
        for eid in eids {
            writeln!(out, "{eid}")?;
        }
    }
    Ok(())
}

fn change(command: u8, what: &'static str, eid: Option<&str>) -> Result<()> {
    let mut family: Family = stats::family()?;
    let mut request = family.command(command, NLM_F_ACK);
    if let Some(eid) = eid {
        request = request.text(ENTRY, eid);
    }
    match family.ask(what, &request) {
        Ok(_) => Ok(()),
        Err(Error::Refused(_, Errno::RANGE)) => {
            Err(Error::Table(format!("{what}: the table is full")))
        }
        Err(Error::Refused(_, Errno::EXIST)) => {
            Err(Error::Table(format!("{what}: it is there already")))
        }
        Err(Error::Refused(_, Errno::NOENT)) => {
            Err(Error::Table(format!("{what}: there is no such UEID")))
        }
        Err(error) => Err(stats::not_yet(error)),
    }
}

/// An EID as the kernel takes it: capitals, blanks up to 32 characters.
fn padded(eid: &str) -> Result<String> {
    let upper = eid.to_ascii_uppercase();
    let allowed = |byte: u8| {
        byte.is_ascii_uppercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'-')
    };
    let valid = (1..=LENGTH).contains(&upper.len())
        && upper.bytes().all(allowed)
        && upper.starts_with(|first: char| first.is_ascii_alphanumeric())
        && !upper.contains("..");
    if !valid {
        return Err(Error::Usage(format!(
            "'{eid}' is no UEID: up to 32 of A-Z 0-9 . - beginning with a letter or digit, no two dots in a row"
        )));
    }
    Ok(format!("{upper:<LENGTH$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_ones_are_padded() {
        assert_eq!(
            padded("ibm.rack-7").unwrap(),
            format!("IBM.RACK-7{}", " ".repeat(22))
        );
        assert_eq!(padded(&"A".repeat(32)).unwrap().len(), 32);
    }

    #[test]
    fn invalid_ones_are_usage_errors() {
        for wrong in ["", ".A", "-A", "A..B", "A B", "A_B", "Ä", &"A".repeat(33)] {
            assert!(matches!(padded(wrong), Err(Error::Usage(_))), "{wrong}");
        }
    }
}
