// SPDX-License-Identifier: GPL-2.0
//! Differences from TCP that are right, each with its reason. Anything else fails.

use crate::differ::Row;
use st::family::Family;

struct Expect {
    scenario: &'static str,
    /// Label of the trace line.
    label: &'static str,
    /// `None` for both SMC families.
    family: Option<Family>,
    /// The value that is right there.
    value: &'static str,
    why: &'static str,
}

const fn e(
    scenario: &'static str,
    label: &'static str,
    family: Option<Family>,
    value: &'static str,
    why: &'static str,
) -> Expect {
    Expect {
        scenario,
        label,
        family,
        value,
        why,
    }
}

const TABLE: &[Expect] = &[e(
    "accept_backlog",
    "some wait",
    None,
    "false",
    "besides TCP's queue the family has one of its own for as many connections again",
)];

/// The reason why `value` is right at this place, if it is; `over`: the differences of what carries the
/// bytes.
pub fn find(
    scenario: &str,
    label: &str,
    fam: Family,
    over: Option<&[Row]>,
    value: &str,
) -> Option<&'static str> {
    if let Some(table) = over {
        if let Some(why) = crate::differ::find(table, scenario, label, value) {
            return Some(why);
        }
    }
    TABLE
        .iter()
        .find(|x| {
            x.scenario == scenario
                && x.label == label
                && x.family.is_none_or(|f| f == fam)
                && fam != Family::Tcp
                && x.value == value
        })
        .map(|x| x.why)
}
