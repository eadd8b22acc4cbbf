// SPDX-License-Identifier: GPL-2.0
//! A peer whose host name tells a terminal what to do, and a program whose name does: what `rsmc`
//! prints of them moves no cursor, changes no colour and fills no clipboard.

use crate::host::Host;
use st::point::T;
use std::os::unix::process::CommandExt;
use std::process::Command;

crate::both!(escapes_in_names);

/// Where the first contact extension of an accept or confirm has the host name.
const HOST_NAME: std::ops::Range<usize> = 108..140;
/// Sets the clipboard, clears the screen; a colour by C1; a forged line; text from right to left.
const NAME: &[u8; 32] = b"\x1b]52;c;cm0=\x07\x1b[2J\xc2\x9b31m\x7f\nLISTEN\xe2\x80\xae";
/// The program's.
const COMM: &[u8] = b"\x1b[2J\x1b]0;me\x07\r\nX";

fn named(mut m: Vec<u8>) -> Vec<u8> {
    let agrees = st::clc::header(&m).is_some_and(|h| h.ty != st::clc::PROPOSAL);
    if let Some(field) = m.get_mut(HOST_NAME).filter(|_| agrees) {
        field.copy_from_slice(NAME);
    }
    m
}

/// Text without anything that a terminal would obey.
fn is_plain(text: &str) -> bool {
    let obeyed = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    !text.chars().any(obeyed)
}

/// What a command says, on both outputs.
fn said(words: &[&str]) -> Result<String, String> {
    let mut command = Command::new("rsmc");
    if let Some((name, rest)) = words.split_first() {
        command.arg0(name).args(rest);
    }
    let output = command.output().map_err(|e| e.to_string())?;
    String::from_utf8([output.stdout, output.stderr].concat()).map_err(|e| e.to_string())
}

fn escapes_in_names(t: &mut T, h: &mut Host) {
    h.dress = named;
    let named = std::fs::write("/proc/self/comm", COMM);
    t.check(&format!("the program's name: {named:?}"), named.is_ok());
    let Some(conn) = h.open(t) else { return };
    let (host, comm) = (
        "\\u001b]52;c;cm0=\\u0007\\u001b[2J\\u009b31m\\u007f\\u000aLISTEN",
        "\\u001b[2J\\u001b]0;me",
    );
    for (words, shown) in [
        (&["rsmc", "link"][..], host),
        (
            &["rsmc", "link", "--json"],
            "\\u001b[2J\\u009b31m\\u007f\\nLISTEN",
        ),
        (&["smcr", "-d", "linkgroup", "show"], host),
        (&["rsmc", "ss"], comm),
        (&["rsmc", "ss", "--json"], comm),
        (&["rsmc", "top", "--interval", "0.1"], comm),
        // It is in use, by the honest connection if by nothing else.
        (&["rsmc", "unload"], comm),
    ] {
        let text = said(words).unwrap_or_else(|e| format!("\x1b{e}"));
        let what = words.join(" ");
        t.check(&format!("{what}: {text:?}"), text.contains(shown));
        t.check(&format!("{what} tells a terminal nothing"), is_plain(&text));
    }
    drop(conn);
}
