// SPDX-License-Identifier: GPL-2.0

//! Test results: reading KTAP from guests and host tools ([`parse`]), and
//! writing the one stream of `lab test` ([`report`]). Knows nothing of how
//! tests are run.

pub mod parse;
pub mod report;

/// One test point.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// Its name.
    pub name: String,
    /// Passed (a skipped point is `ok` too).
    pub ok: bool,
    /// Why it was skipped.
    pub skip: Option<String>,
    /// Its subtests.
    pub points: Vec<Point>,
    /// Diagnostic lines.
    pub notes: Vec<String>,
}

impl Point {
    /// A point that passed.
    pub fn pass(name: impl Into<String>) -> Point {
        Point {
            name: name.into(),
            ok: true,
            ..Point::default()
        }
    }

    /// A point that failed, with explanations.
    pub fn fail(name: impl Into<String>, notes: impl IntoIterator<Item = String>) -> Point {
        Point {
            name: name.into(),
            notes: notes.into_iter().collect(),
            ..Point::default()
        }
    }

    /// A point that was skipped, with the reason.
    pub fn skip(name: impl Into<String>, reason: impl Into<String>) -> Point {
        Point {
            name: name.into(),
            ok: true,
            skip: Some(reason.into()),
            ..Point::default()
        }
    }

    /// Builds a point from its subtests: failed if one failed, skipped if all
    /// were.
    pub fn of(name: impl Into<String>, points: Vec<Point>) -> Point {
        let ok = points.iter().all(|point| point.ok);
        let all_skipped = !points.is_empty() && points.iter().all(|point| point.skip.is_some());
        let reason = points.first().and_then(|point| point.skip.clone());
        Point {
            name: name.into(),
            ok,
            skip: if all_skipped { reason } else { None },
            points,
            notes: Vec::new(),
        }
    }
}
