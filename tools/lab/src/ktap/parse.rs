// SPDX-License-Identifier: GPL-2.0

//! Reads a KTAP (or TAP 13) stream, line by line, keeping subtests.
//!
//! Lenient where programs differ (indentation by any number of spaces, missing
//! numbers, missing version line), strict where silence could hide a failure:
//! a missing plan, too few or too many points, a point without a name.

use super::Point;

/// A stream being read.
#[derive(Default)]
pub struct Parser {
    /// Open blocks, the outermost first.
    blocks: Vec<Block>,
}

#[derive(Default)]
struct Block {
    indent: usize,
    plan: Option<usize>,
    plan_skip: Option<String>,
    bail: Option<String>,
    points: Vec<Point>,
    notes: Vec<String>,
}

enum Line<'a> {
    Version,
    Plan(usize, Option<&'a str>),
    Result(Point),
    Note(&'a str),
    Bail(&'a str),
    Other,
}

impl Parser {
    /// Reads one line. Returns the outermost point it completes, if any.
    pub fn feed(&mut self, raw: &str) -> Option<Point> {
        let text = raw.trim_start_matches(' ');
        let indent = raw.len() - text.len();
        let line = classify(text);
        if matches!(line, Line::Other) {
            return None;
        }
        self.settle(indent, &line);
        let depth = self.blocks.len();
        let block = self.blocks.last_mut()?;
        match line {
            Line::Plan(count, skip) => {
                block.plan = Some(count);
                block.plan_skip = skip.map(str::to_owned);
            }
            Line::Note(text) => block.notes.push(text.to_owned()),
            Line::Bail(text) => block.bail = Some(text.to_owned()),
            Line::Result(mut point) => {
                // It closes the subtests before it.
                let nameless = block
                    .points
                    .last()
                    .is_some_and(|point| point.name.is_empty());
                if let (true, Some(inner)) = (nameless, block.points.len().checked_sub(1)) {
                    let inner = block.points.remove(inner);
                    block.notes.extend(inner.notes);
                    if point.ok && inner.points.iter().any(|point| !point.ok) {
                        point.ok = false;
                        block.notes.push("a subtest failed".into());
                    }
                    point.points = inner.points;
                }
                point.notes.splice(0..0, block.notes.drain(..));
                block.points.push(point.clone());
                if depth == 1 {
                    return Some(point);
                }
            }
            Line::Version | Line::Other => {}
        }
        None
    }

    /// Makes the last block the one `line` belongs to.
    fn settle(&mut self, indent: usize, line: &Line<'_>) {
        while self.blocks.len() > 1
            && self
                .blocks
                .last()
                .is_some_and(|block| block.indent > indent)
        {
            let Some(inner) = self.blocks.pop() else {
                return;
            };
            let Some(outer) = self.blocks.last_mut() else {
                return;
            };
            // The result line that closes the subtest comes next, one level
            // up; until then it is a point without a name.
            let mut point = Point::of(String::new(), Vec::new());
            (point.points, point.notes) = inner.close();
            outer.points.push(point);
        }
        let deeper = self.blocks.last().is_none_or(|block| block.indent < indent);
        if deeper && (self.blocks.is_empty() || !matches!(line, Line::Note(_))) {
            self.blocks.push(Block {
                indent,
                ..Block::default()
            });
        }
    }

    /// Ends the stream. Returns its points, with failed ones added for
    /// everything that is wrong with the stream itself.
    pub fn finish(mut self) -> Vec<Point> {
        self.settle(0, &Line::Version);
        let Some(block) = self.blocks.pop() else {
            return vec![Point::fail("ktap", ["no KTAP output".to_owned()])];
        };
        block.close().0
    }
}

impl Block {
    /// Checks that subtests were closed and the plan was kept.
    fn close(self) -> (Vec<Point>, Vec<String>) {
        let mut points: Vec<Point> = Vec::new();
        let mut wrong: Vec<String> = Vec::new();
        for point in self.points {
            if point.name.is_empty() {
                wrong.push("a subtest has no result line".into());
                points.extend(point.points);
            } else {
                points.push(point);
            }
        }
        if let Some(reason) = self.bail {
            wrong.push(format!("bail out: {reason}"));
        }
        match (self.plan, &self.plan_skip) {
            (Some(0), skip) if points.is_empty() => {
                let reason = skip.clone().unwrap_or_else(|| "empty plan".into());
                points.push(Point::skip("all", reason));
            }
            (Some(count), _) if count != points.len() => {
                wrong.push(format!("planned {count} points, saw {}", points.len()));
            }
            (None, _) => wrong.push("no plan (1..N)".into()),
            _ => {}
        }
        if !wrong.is_empty() {
            points.push(Point::fail("ktap", wrong));
        }
        (points, self.notes)
    }
}

fn classify(text: &str) -> Line<'_> {
    if text.starts_with("KTAP version ") || text.starts_with("TAP version ") {
        return Line::Version;
    }
    if let Some(note) = text.strip_prefix('#') {
        return Line::Note(note.trim());
    }
    if let Some(reason) = text.strip_prefix("Bail out!") {
        return Line::Bail(reason.trim());
    }
    if let Some(rest) = text.strip_prefix("1..") {
        let (number, tail) = split_number(rest);
        if let Some(count) = number {
            let skip = tail
                .trim()
                .strip_prefix('#')
                .map(|tail| directive(tail.trim()).unwrap_or(""));
            return Line::Plan(count, skip);
        }
    }
    let (ok, rest) = match (text.strip_prefix("ok"), text.strip_prefix("not ok")) {
        (Some(rest), _) => (true, rest),
        (_, Some(rest)) => (false, rest),
        _ => return Line::Other,
    };
    if !rest.is_empty() && !rest.starts_with(' ') {
        return Line::Other;
    }
    Line::Result(result(ok, rest.trim_start()))
}

fn split_number(text: &str) -> (Option<usize>, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    (text[..end].parse().ok(), &text[end..])
}

/// The reason of a `SKIP reason` directive.
fn directive(text: &str) -> Option<&str> {
    let word = text.get(..4)?;
    word.eq_ignore_ascii_case("skip").then(|| text[4..].trim())
}

fn result(ok: bool, rest: &str) -> Point {
    let (number, tail) = split_number(rest);
    let rest = if number.is_some() {
        tail.trim_start()
    } else {
        rest
    };
    let rest = rest.strip_prefix("- ").unwrap_or(rest);
    let (name, comment) = match rest.split_once('#') {
        Some((name, comment)) => (name.trim(), Some(comment.trim())),
        None => (rest.trim(), None),
    };
    let mut point = Point {
        name: if name.is_empty() {
            format!("point-{}", number.unwrap_or(0))
        } else {
            name.into()
        },
        ok,
        ..Point::default()
    };
    if let Some(comment) = comment {
        match directive(comment) {
            // A failed point is not excused by a skip, and a skip needs a
            // reason.
            Some("") => {
                point.ok = false;
                point.notes.push("skipped without a reason".into());
            }
            Some(reason) if ok => point.skip = Some(reason.into()),
            _ => point.notes.push(comment.into()),
        }
    }
    point
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Vec<Point> {
        let mut parser = Parser::default();
        for line in text.lines() {
            parser.feed(line);
        }
        parser.finish()
    }

    #[test]
    fn flat() {
        let points =
            parse("KTAP version 1\n1..3\nok 1 - a\n# why\nnot ok 2 - b\nok 3 c # SKIP no x\n");
        assert_eq!(points.len(), 3);
        assert!(points[0].ok && points[0].skip.is_none());
        assert!(!points[1].ok);
        assert_eq!(points[1].notes, ["why"]);
        assert_eq!(points[2].skip.as_deref(), Some("no x"));
    }

    #[test]
    fn nested() {
        let points = parse("1..2\n  KTAP version 1\n  1..2\n  ok 1 - x\n    1..1\n    not ok 1 - deep\n  not ok 2 - y\nnot ok 1 - outer\nok 2 - z\n");
        assert_eq!(points.len(), 2);
        assert_eq!(points[0].name, "outer");
        assert_eq!(points[0].points.len(), 2);
        assert_eq!(points[0].points[1].points[0].name, "deep");
        assert_eq!(points[1].name, "z");
    }

    #[test]
    fn a_failed_subtest_fails_its_test() {
        let points = parse("1..1\n  1..1\n  not ok 1 - x\nok 1 - outer\n");
        assert!(!points[0].ok);
    }

    #[test]
    fn broken_streams_fail() {
        for text in [
            "",
            "noise\n",
            "1..2\nok 1 - a\n",
            "ok 1 - a\n",
            "1..1\nok 1 - a\nok 2 - b\n",
            "1..1\nok 1 - a # SKIP\n",
            "1..1\nBail out! no memory\n",
            "1..1\n  1..1\n  ok 1 - never closed\n",
            "1..1\n  1..2\n  ok 1 - short\nok 1 - outer\n",
        ] {
            assert!(parse(text).iter().any(|point| !point.ok), "{text:?}");
        }
    }

    #[test]
    fn plan_may_come_last_and_be_empty() {
        assert!(parse("ok 1 - a\n1..1\n").iter().all(|point| point.ok));
        assert_eq!(
            parse("1..0 # SKIP no rxe\n"),
            [Point::skip("all", "no rxe")]
        );
    }

    #[test]
    fn prose_that_starts_like_a_result_is_not_one() {
        assert_eq!(parse("okay then\n1..1\nok 1 - a\n").len(), 1);
    }
}
