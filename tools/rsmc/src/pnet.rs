// SPDX-License-Identifier: GPL-2.0
//! `rsmc pnet`: the PNET table (generic netlink family `SMC_PNETID`).

use crate::cli::{PnetAction, PnetArgs};
use crate::error::{Error, Result};
use crate::netlink::genl::{Body, Family};
use crate::netlink::wire::{NLM_F_ACK, NLM_F_DUMP};
use crate::{absent, diag, table};
use rustix::io::Errno;
use serde::Serialize;
use std::io::Write;

const GET: u8 = 1;
const ADD: u8 = 2;
const DEL: u8 = 3;
const FLUSH: u8 = 4;
/// Attribute `SMC_PNETID_NAME`: text.
const NAME: u16 = 1;
/// Attribute `SMC_PNETID_ETHNAME`: text.
const ETHNAME: u16 = 2;
/// Attribute `SMC_PNETID_IBNAME`: text.
const IBNAME: u16 = 3;
/// Attribute `SMC_PNETID_IBPORT`: `u8`.
const IBPORT: u16 = 4;
/// The kernel's word for a side that an entry does not have.
const ABSENT: &str = "n/a";

/// Shows or changes the table.
///
/// # Errors
/// `NotThere` without the netlink family, `Usage` for an id that cannot be one, or the kernel's.
pub fn run(args: &PnetArgs, out: &mut dyn Write) -> Result<()> {
    match &args.action {
        None => show(None, false, out),
        Some(PnetAction::Show { id, json }) => show(id.as_deref(), *json, out),
        Some(PnetAction::Add {
            id,
            interface,
            ibdevice,
            ibport,
        }) => {
            let id = checked(id)?;
            let mut family = family()?;
            let mut request = family.command(ADD, NLM_F_ACK).text(NAME, &id);
            if let Some(interface) = interface {
                request = request.text(ETHNAME, interface);
            }
            if let Some(device) = ibdevice {
                request = request
                    .text(IBNAME, device)
                    .attribute(IBPORT, &[ibport.unwrap_or(1)]);
            }
            let what = "adding to the PNET table";
            match family.ask(what, &request) {
                Err(Error::Refused(_, Errno::EXIST)) => Err(Error::Table(format!(
                    "{what}: the {} already",
                    match ibdevice {
                        Some(_) =>
                            "port is not this network namespace's to enter (RDMA ports are entered \
                             in the initial one), or it is in a physical network",
                        None => "interface is in a physical network",
                    }
                ))),
                other => other.map(|_| ()),
            }
        }
        Some(PnetAction::Del { id }) => {
            let id = checked(id)?;
            let mut family = family()?;
            let request = family.command(DEL, NLM_F_ACK).text(NAME, &id);
            match family.ask("removing from the PNET table", &request) {
                Err(Error::Refused(what, Errno::NOENT)) => {
                    Err(Error::Table(format!("{what}: there is no entry of {id}")))
                }
                other => other.map(|_| ()),
            }
        }
        Some(PnetAction::Flush) => {
            let mut family = family()?;
            let request = family.command(FLUSH, NLM_F_ACK);
            family.ask("emptying the PNET table", &request).map(|_| ())
        }
    }
}

fn family() -> Result<Family> {
    Family::find("SMC_PNETID", 1, missing)
}

fn missing() -> String {
    if diag::has_smc_protocol() {
        "the loaded SMC module has no PNET table (netlink family SMC_PNETID)".into()
    } else {
        absent::line()
    }
}

/// An entry as `--json` prints it. The names are an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Physical network.
    pub id: String,
    /// Network interface.
    pub interface: Option<String>,
    /// RDMA device.
    pub ibdevice: Option<String>,
    /// Its port.
    pub ibport: Option<u64>,
}

fn entry(body: &Body) -> Result<Entry> {
    let mut entry = Entry {
        id: String::new(),
        interface: None,
        ibdevice: None,
        ibport: None,
    };
    for attribute in body.attributes()? {
        let side = || Some(attribute.text()).filter(|name| name != ABSENT);
        match attribute.kind {
            NAME => entry.id = attribute.text(),
            ETHNAME => entry.interface = side(),
            IBNAME => entry.ibdevice = side(),
            IBPORT => entry.ibport = attribute.number().filter(|port| *port != 0xff),
            _ => {}
        }
    }
    Ok(entry)
}

/// The table's entries, or those of one id.
///
/// # Errors
/// `NotThere` without the netlink family, `Usage` for an id that cannot be one, or the kernel's.
pub fn collect(id: Option<&str>) -> Result<Vec<Entry>> {
    let id = id.map(checked).transpose()?;
    let mut family = family()?;
    let request = family.command(GET, NLM_F_DUMP);
    let mut entries = Vec::new();
    for body in family.ask("listing the PNET table", &request)? {
        let entry = entry(&body)?;
        if id.as_ref().is_none_or(|id| *id == entry.id) {
            entries.push(entry);
        }
    }
    Ok(entries)
}

fn show(id: Option<&str>, json: bool, out: &mut dyn Write) -> Result<()> {
    let entries = collect(id)?;
    if json {
        serde_json::to_writer_pretty(&mut *out, &entries)?;
        writeln!(out)?;
        return Ok(());
    }
    let mut rows = Vec::new();
    for entry in entries {
        let text = |side: Option<String>| side.unwrap_or_else(|| "-".into());
        rows.push(vec![
            entry.id,
            text(entry.interface),
            text(entry.ibdevice),
            text(entry.ibport.map(|port| port.to_string())),
        ]);
    }
    table::print(out, &["PNET id", "Interface", "RDMA device", "Port"], &rows)?;
    Ok(())
}

/// An id as the kernel stores it: up to 16 letters and digits, in capitals.
fn checked(id: &str) -> Result<String> {
    if (1..=16).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Ok(id.to_ascii_uppercase());
    }
    Err(Error::Usage(format!(
        "'{id}' is no PNET id: up to 16 letters and digits"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::wire::attribute;

    #[test]
    fn entries() {
        let body = [
            attribute(NAME, b"NET1\0"),
            attribute(ETHNAME, b"n/a\0"),
            attribute(IBNAME, b"rxe0\0"),
            attribute(IBPORT, &[2]),
        ];
        let port = entry(&Body(body.concat())).unwrap();
        assert_eq!((port.id.as_str(), port.interface), ("NET1", None));
        assert_eq!(
            (port.ibdevice.as_deref(), port.ibport),
            (Some("rxe0"), Some(2))
        );
        let body = [
            attribute(NAME, b"NET1\0"),
            attribute(ETHNAME, b"eth0\0"),
            attribute(IBNAME, b"n/a\0"),
            attribute(IBPORT, &[255]),
        ];
        let interface = entry(&Body(body.concat())).unwrap();
        assert_eq!(interface.interface.as_deref(), Some("eth0"));
        assert_eq!((interface.ibdevice, interface.ibport), (None, None));
        assert!(entry(&Body(vec![9, 0, 1, 0, 1])).is_err());
    }

    #[test]
    fn ids() {
        assert_eq!(checked("net1").unwrap(), "NET1");
        for wrong in ["", "a-b", "ABCDEFGHIJKLMNOPQ", "ä"] {
            assert!(matches!(checked(wrong), Err(Error::Usage(_))), "{wrong}");
        }
    }
}
