// SPDX-License-Identifier: GPL-2.0
//! `rsmc report --hardware`: what SMC-R needs of RDMA devices, gone through item by item.
//!
//! [`facts`] reads what the system says without privileges, [`nldev`], [`pfc`] and [`limits`] what sysfs does
//! not have, and [`judge`] says what each means. Nothing is changed.

pub mod facts;
pub mod judge;
pub mod limits;
pub mod nldev;
pub mod pfc;

use crate::error::{Error, Result};
use crate::table::{self, Colour};
use crate::visible;
use crate::why::checks::{self, Check};
use serde::Serialize;
use std::io::{self, Write};
use std::path::Path;

/// Result for an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As SMC-R needs it.
    Ok,
    /// Keeps the port from being used, or makes it slow.
    Attention,
    /// Not to be learned here.
    Unknown,
}

/// An item of the list. `--json` prints it so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Item {
    /// Short and stable.
    pub name: &'static str,
    /// Judgment.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do about it, `null` where nothing is.
    pub advice: Option<String>,
}

impl Item {
    pub(crate) fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            verdict: Verdict::Ok,
            found: found.into(),
            advice: None,
        }
    }

    pub(crate) fn attention(
        name: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            verdict: Verdict::Attention,
            advice: Some(advice.into()),
            ..Self::ok(name, found)
        }
    }

    pub(crate) fn unknown(
        name: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            verdict: Verdict::Unknown,
            ..Self::attention(name, found, advice)
        }
    }
}

/// A port of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Port {
    /// RDMA device.
    pub device: String,
    /// Port, from 1.
    pub port: u32,
    /// SMC-R can use it, as far as is seen here.
    pub usable: bool,
    /// What was looked at.
    pub items: Vec<Item>,
}

/// Output of `--json`. The names are an interface: fields are added, never renamed.
#[derive(Clone, Debug, Serialize)]
pub struct Hardware {
    /// Version of this program.
    pub rsmc: &'static str,
    /// The host.
    pub host: Vec<Item>,
    /// Ports of all RDMA devices that this namespace sees.
    pub ports: Vec<Port>,
    /// What `rsmc why` says of module, EIDs and devices; nothing without a module.
    pub why: Vec<Check>,
}

/// Goes through the list.
pub fn collect() -> Hardware {
    let ports = facts::ports(Path::new("/sys"));
    let host = facts::host(Path::new("/"));
    Hardware {
        rsmc: env!("CARGO_PKG_VERSION"),
        host: judge::host(&host),
        ports: ports.iter().map(judge::port).collect(),
        // Without a module they would judge what is not there.
        why: host.module.map_or(Vec::new(), |_| checks::all(None, None)),
    }
}

/// Prints the list.
///
/// # Errors
/// `Io` if there is no port that SMC-R can use, and errors of writing.
pub fn run(json: bool, out: &mut dyn Write) -> Result<()> {
    let hardware = collect();
    if json {
        serde_json::to_writer_pretty(&mut *out, &hardware)?;
        writeln!(out)?;
    } else {
        tell(&hardware, out)?;
    }
    match hardware.ports.iter().any(|port| port.usable) {
        true => Ok(()),
        false => {
            let line = "no RDMA port here can be used for SMC-R";
            Err(Error::Io(io::Error::other(line)))
        }
    }
}

/// Prints the list as text.
///
/// # Errors
/// Errors of writing to `out`.
pub fn tell(hardware: &Hardware, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "Host")?;
    items(&hardware.host, out)?;
    for port in &hardware.ports {
        let can = if port.usable { "can" } else { "cannot" };
        writeln!(out, "\n{}/{}: SMC-R {can} use it", port.device, port.port)?;
        items(&port.items, out)?;
    }
    if hardware.ports.is_empty() {
        writeln!(
            out,
            "\nThere is no RDMA device in this namespace (`rdma link`, `rdma system`)."
        )?;
    }
    if hardware.why.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nWhat `rsmc why` says")?;
    checks::tell(&hardware.why, out)
}

fn items(items: &[Item], out: &mut dyn Write) -> Result<()> {
    let coloured = table::has_colours();
    for item in items {
        let (word, colour) = match item.verdict {
            Verdict::Ok => ("ok  ", Colour::Green),
            Verdict::Attention => ("look", Colour::Red),
            Verdict::Unknown => ("?   ", Colour::Yellow),
        };
        let word = match coloured {
            true => colour.paint(word),
            false => word.into(),
        };
        let found = visible::text(&item.found);
        writeln!(out, "  {word}  {:<12}  {found}", item.name)?;
        if let Some(advice) = &item.advice {
            writeln!(out, "{:22}{}", "", visible::text(advice))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_as_text() {
        let hardware = Hardware {
            rsmc: "1",
            host: vec![Item::ok("kernel", "7.2")],
            ports: vec![Port {
                device: "mlx5_0".into(),
                port: 1,
                usable: false,
                items: vec![
                    Item::attention("state", "down", "Bring it up."),
                    Item::unknown("limits", "no ibv_devinfo", "Install it."),
                ],
            }],
            why: Vec::new(),
        };
        let mut out = Vec::new();
        tell(&hardware, &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "Host\n  ok    kernel        7.2\n\nmlx5_0/1: SMC-R cannot use it\n  look  state         down\n\
             \u{20}                     Bring it up.\n  ?     limits        no ibv_devinfo\n\
             \u{20}                     Install it.\n"
        );
        let json = serde_json::to_value(&hardware).unwrap();
        assert_eq!(json["ports"][0]["items"][0]["verdict"], "attention");
        assert_eq!(json["host"][0]["advice"], serde_json::Value::Null);
    }
}
