// SPDX-License-Identifier: GPL-2.0
//! Rules as text: one line each, a verdict and conditions.

use crate::error::{Error, Result};
use smc_proto::policy::{self, Network, Range, Verdict};
use std::fmt::Write;
use std::net::{IpAddr, Ipv6Addr};
use std::process::Command;

/// A rule.
pub type Rule = policy::Rule<String>;

/// Longest text of a condition that the kernel takes, in bytes.
const TEXT: usize = 255;
/// Longest name of a thread.
const COMM: usize = 15;

fn wrong(line: impl Into<String>) -> Error {
    Error::Usage(line.into())
}

/// Reads a rule from its words.
///
/// # Errors
/// `Usage` with what is wrong.
pub fn from_words(words: &[String]) -> Result<Rule> {
    let (first, conditions) = words
        .split_first()
        .ok_or_else(|| wrong("a rule begins with allow, deny, auto or share=PERCENT"))?;
    let mut rule = Rule::new(verdict(first)?);
    let mut seen = Vec::new();
    for word in conditions {
        let (key, value) = match word.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (word.as_str(), None),
        };
        if seen.contains(&key) {
            return Err(wrong(format!("{key} is there twice")));
        }
        seen.push(key);
        if key == "mptcp" && value.is_none() {
            rule.mptcp = true;
            continue;
        }
        let value = value.filter(|value| !value.is_empty()).ok_or_else(|| {
            wrong(format!(
                "'{word}' is no condition, such as exe=/usr/bin/nginx"
            ))
        })?;
        match key {
            "exe" => rule.exe = Some(path(key, value)?),
            "comm" if value.len() > COMM => {
                return Err(wrong(format!(
                    "comm={value}: a thread's name has at most {COMM} bytes"
                )));
            }
            "comm" => rule.comm = Some(value.into()),
            "cgroup" => rule.cgroup = Some(path(key, value)?),
            "uid" => rule.uid = Some(user(value)?),
            "port" => rule.port = Some(range(value)?),
            "peer" => rule.peer = Some(network(value)?),
            "peer-port" => rule.peer_port = Some(range(value)?),
            _ => return Err(wrong(format!("there is no condition '{key}'"))),
        }
    }
    Ok(rule)
}

fn verdict(word: &str) -> Result<Verdict> {
    match (word, word.strip_prefix("share=")) {
        ("allow", _) => Ok(Verdict::Allow),
        ("deny", _) => Ok(Verdict::Deny),
        ("auto", _) => Ok(Verdict::Auto),
        (_, Some(part)) => match part.trim_end_matches('%').parse() {
            Ok(part @ 0..=100) => Ok(Verdict::Share(part)),
            _ => Err(wrong(format!("{word}: a share is 0 to 100 percent"))),
        },
        _ => Err(wrong(format!(
            "'{word}' is no verdict: allow, deny, auto or share=PERCENT"
        ))),
    }
}

fn path(key: &str, value: &str) -> Result<String> {
    if value.len() > TEXT {
        return Err(wrong(format!("{key}: more than {TEXT} bytes")));
    }
    if !value.starts_with(['/', '*']) {
        return Err(wrong(format!("{key}={value}: a path begins with /")));
    }
    Ok(value.into())
}

/// A user's number, of a name or a number.
///
/// # Errors
/// `Usage` when there is no such user.
pub fn user(value: &str) -> Result<u32> {
    if let Ok(uid) = value.parse() {
        return Ok(uid);
    }
    // The name service may know users that no file has.
    let answer = Command::new("getent").args(["passwd", value]).output()?;
    let line = String::from_utf8_lossy(&answer.stdout).into_owned();
    line.split(':')
        .nth(2)
        .and_then(|uid| uid.parse().ok())
        .ok_or_else(|| wrong(format!("there is no user {value}")))
}

fn range(value: &str) -> Result<Range> {
    let (first, last) = value.split_once('-').unwrap_or((value, value));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(Range { first, last }),
        _ => Err(wrong(format!(
            "'{value}' is no port, and no range of ports"
        ))),
    }
}

/// An address as the kernel's rules have it: IPv4 ones mapped.
pub fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

fn network(value: &str) -> Result<Network> {
    let (address, length) = match value.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (value, None),
    };
    let parsed = address.parse::<IpAddr>().ok().and_then(|address| {
        let (most, more) = match address {
            IpAddr::V4(_) => (32u8, 96),
            IpAddr::V6(_) => (128, 0),
        };
        let length = length.map_or(Some(most), |length| length.parse().ok())?;
        (length <= most).then(|| Network::new(mapped(address), length + more))?
    });
    parsed.ok_or_else(|| wrong(format!("'{value}' is no address, and no network")))
}

/// A verdict as text.
pub fn verdict_text(verdict: Verdict) -> String {
    match verdict {
        Verdict::Allow => "allow".into(),
        Verdict::Deny => "deny".into(),
        Verdict::Auto => "auto".into(),
        Verdict::Share(part) => format!("share={part}"),
    }
}

fn range_text(range: Range) -> String {
    match range.first == range.last {
        true => range.first.to_string(),
        false => format!("{}-{}", range.first, range.last),
    }
}

fn network_text(network: Network) -> String {
    let (address, length) = (Ipv6Addr::from(network.address()), network.length());
    match address.to_ipv4_mapped() {
        Some(v4) if length == 128 => v4.to_string(),
        Some(v4) if length >= 96 => format!("{v4}/{}", length - 96),
        _ if length == 128 => address.to_string(),
        _ => format!("{address}/{length}"),
    }
}

/// A rule's conditions as text; empty without any.
pub fn conditions(rule: &Rule) -> String {
    let mut line = String::new();
    let mut add = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            let quoted =
                shlex::try_quote(&value).map_or(value.clone(), |quoted| quoted.into_owned());
            // Patterns need no quotes here, in contrast to a shell.
            let plain = !value.contains([' ', '\t', '"', '\'', '\\', '#']);
            let value = if plain { value } else { quoted };
            let space = if line.is_empty() { "" } else { " " };
            let _ = write!(line, "{space}{key}={value}");
        }
    };
    add("exe", rule.exe.clone());
    add("comm", rule.comm.clone());
    add("cgroup", rule.cgroup.clone());
    add("uid", rule.uid.map(|uid| uid.to_string()));
    add("port", rule.port.map(range_text));
    add("peer", rule.peer.map(network_text));
    add("peer-port", rule.peer_port.map(range_text));
    if rule.mptcp {
        line.push_str(if line.is_empty() { "mptcp" } else { " mptcp" });
    }
    line
}

/// Reads a file of rules: one a line, words as in a shell, and what follows a `#` is a comment.
///
/// # Errors
/// `Usage` with the number of the first line that is wrong.
pub fn from_file(name: &str, text: &str) -> Result<Vec<Rule>> {
    let mut rules = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let at = |what: String| wrong(format!("{name}:{number}: {what}"));
        let words = shlex::split(line).ok_or_else(|| at("a quote is open at the end".into()))?;
        if words.is_empty() {
            continue;
        }
        rules.push(from_words(&words).map_err(|error| at(error.to_string()))?);
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Result<Rule> {
        from_file("f", line).map(|mut rules| rules.remove(0))
    }

    /// The manual page has each verdict and condition, and its example is a file of rules.
    #[test]
    fn the_manual_page_is_right() {
        let page = include_str!("../../man/policy.conf.5").replace("\\-", "-");
        for word in [
            "allow",
            "deny",
            "auto",
            "share=",
            "exe=",
            "comm=",
            "cgroup=",
            "uid=",
            "port=",
            "peer=",
            "peer-port=",
            "mptcp",
        ] {
            let found = page.lines().any(|line| {
                let line = line.strip_prefix(".BI ").or(line.strip_prefix(".B "));
                line.is_some_and(|line| line.split(' ').next() == Some(word))
            });
            assert!(found, "{word}");
        }
        let (_, example) = page.split_once(".SH EXAMPLES\n.nf\n").unwrap();
        let (example, _) = example.split_once(".fi").unwrap();
        assert_eq!(from_file("example", example).unwrap().len(), 4);
    }

    #[test]
    fn a_rule_reads_back() {
        for line in [
            "allow",
            "deny exe=/usr/bin/redis-server",
            "auto comm=nginx* port=80",
            "share=10 cgroup=/system.slice/a.service uid=107",
            "allow port=8000-8080 peer=10.0.0.0/8 peer-port=1-65535",
            "deny peer=fd00::/8",
            "deny peer=2001:db8::1",
            "allow peer=192.0.2.1 mptcp",
            "allow mptcp",
            "deny peer=::/0",
            "allow exe='/opt/my app/x'",
        ] {
            let rule = one(line).unwrap();
            let text = format!("{} {}", verdict_text(rule.verdict), conditions(&rule));
            assert_eq!(text.trim_end(), line);
            assert_eq!(one(&text).unwrap(), rule);
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, says) in [
            ("permit", "no verdict"),
            ("share=101", "0 to 100"),
            ("allow exe", "no condition"),
            ("allow exe=", "no condition"),
            ("allow exe=nginx", "begins with /"),
            ("allow comm=0123456789abcdef", "15 bytes"),
            ("allow port=5-4", "no port"),
            ("allow port=70000", "no port"),
            ("allow peer=10.0.0.0/33", "no network"),
            ("allow peer=host", "no network"),
            ("allow port=1 port=2", "twice"),
            ("allow colour=red", "no condition 'colour'"),
            ("allow exe='/x", "quote is open"),
        ] {
            let error = one(line).unwrap_err().to_string();
            assert!(error.contains(says), "{line}: {error}");
        }
        let error = from_file("f", "# first\n\nallow\nnothing\n").unwrap_err();
        assert!(error.to_string().starts_with("f:4:"), "{error}");
    }

    #[test]
    fn comments_and_quotes() {
        let rules = from_file("f", "# all\n  allow exe=\"/a b\" # one\n\n\tdeny\n").unwrap();
        assert_eq!(rules.len(), 2);
        assert_eq!(rules[0].exe.as_deref(), Some("/a b"));
    }
}
