// SPDX-License-Identifier: GPL-2.0
//! Changes of the rules that the kernel has, for other commands.

use super::rule::Rule;
use super::wire::{attribute, command};
use super::{collect, del, family, full, wire};
use crate::error::{Error, Result};
use crate::netlink::wire::NLM_F_ACK;

/// Adds a rule, before that at `position` from 0, or at the end.
///
/// # Errors
/// `NotThere` without the netlink family, `Table` when it is full, or the kernel's.
pub fn add(rule: &Rule, position: Option<u32>) -> Result<()> {
    let mut family = family()?;
    let mut request = family
        .command(command::ADD, NLM_F_ACK)
        .nest(attribute::RULE, &wire::encode(rule));
    if let Some(at) = position {
        request = request.attribute(attribute::POSITION, &at.to_ne_bytes());
    }
    full(family.ask("adding a rule", &request).map(|_| ()))
}

/// Replaces all rules at once.
///
/// # Errors
/// As [`add`].
pub fn replace(rules: &[Rule]) -> Result<()> {
    let mut family = family()?;
    let mut request = family.command(command::REPLACE, NLM_F_ACK);
    for rule in rules {
        request = request.nest(attribute::RULE, &wire::encode(rule));
    }
    full(family.ask("replacing the rules", &request).map(|_| ()))
}

/// Adds those of the rules that are missing, at the end; returns how many.
///
/// # Errors
/// As [`add`].
pub fn ensure(rules: &[Rule]) -> Result<usize> {
    let listed = collect()?;
    let mut added = 0;
    for rule in rules {
        if !listed.iter().any(|listed| listed.rule == *rule) {
            add(rule, None)?;
            added += 1;
        }
    }
    Ok(added)
}

/// Removes the rules of which `unwanted` says so; returns how many there are left.
///
/// # Errors
/// `NotThere` without the netlink family, or the kernel's.
pub fn remove(unwanted: impl Fn(&Rule) -> bool) -> Result<usize> {
    let mut left = 0;
    for listed in collect()? {
        if !unwanted(&listed.rule) {
            left += 1;
            continue;
        }
        match del(listed.id) {
            // Somebody else was quicker.
            Err(Error::Table(_)) => {}
            other => other?,
        }
    }
    Ok(left)
}
