// SPDX-License-Identifier: GPL-2.0

//! Remains of a test in a guest that others use after it: interfaces, devices, namespaces and
//! settings, as `topo.sh` lists them before and after. Which tests share a boot, and in which order,
//! depends on how long they took here before, so none may rely on it.

use crate::ktap::Point;
use std::collections::BTreeSet;

/// A point that fails, unless every guest is `after` the test as it was `before`.
pub fn behind(before: &[Vec<String>], after: &[Vec<String>]) -> Option<Point> {
    let notes: Vec<String> = before
        .iter()
        .zip(after)
        .flat_map(|(before, after)| changes(before, after))
        .collect();
    (!notes.is_empty()).then(|| Point::fail("left_behind", notes))
}

fn changes(before: &[String], after: &[String]) -> Vec<String> {
    let set = |lines: &'_ [String]| lines.iter().cloned().collect::<BTreeSet<String>>();
    let (before, after) = (set(before), set(after));
    let gone = before.difference(&after).map(|line| format!("was: {line}"));
    let new = after.difference(&before).map(|line| format!("is:  {line}"));
    gone.chain(new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn tells_what_changed() {
        let before = [lines("name lo\nname vec0\nshared Y")];
        let after = [lines("name lo\nname vec0\nname vlan7")];
        assert_eq!(behind(&before, &before), None);
        let point = behind(&before, &after).unwrap();
        assert!(!point.ok);
        assert_eq!(point.notes, ["was: shared Y", "is:  name vlan7"]);
    }
}
