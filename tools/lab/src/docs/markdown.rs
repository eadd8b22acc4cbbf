// SPDX-License-Identifier: GPL-2.0

//! What Markdown files say: links, headings, blocks of code.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use std::collections::{BTreeSet, HashMap};

/// A link or image, with the line it stands in, from 1.
#[derive(Debug, PartialEq, Eq)]
pub struct Link {
    /// Its line.
    pub line: usize,
    /// Where it leads.
    pub target: String,
}

/// A fenced block of code.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// The line of its fence, from 1.
    pub line: usize,
    /// The words behind the fence.
    pub info: String,
    /// Its text.
    pub text: String,
}

/// What is of interest in a file.
#[derive(Debug, Default)]
pub struct Page {
    /// All links, images among them.
    pub links: Vec<Link>,
    /// What may stand behind `#` in a link to this file.
    pub anchors: BTreeSet<String>,
    /// Fenced blocks.
    pub blocks: Vec<Block>,
    /// Lines of blocks without a fence.
    pub indented: Vec<usize>,
}

/// Reads a file's text.
pub fn read(text: &str) -> Page {
    let mut page = Page::default();
    let line = |offset: usize| {
        text.get(..offset)
            .map_or(0, |before| before.matches('\n').count())
            + 1
    };
    let options = Options::ENABLE_TABLES | Options::ENABLE_HEADING_ATTRIBUTES;
    let mut heading: Option<String> = None;
    let mut block: Option<Block> = None;
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                page.links.push(Link {
                    line: line(range.start),
                    target: dest_url.into_string(),
                });
            }
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let slug = slug(&heading.take().unwrap_or_default());
                let times = seen.entry(slug.clone()).or_insert(0);
                page.anchors.insert(match *times {
                    0 => slug,
                    times => format!("{slug}-{times}"),
                });
                *times += 1;
            }
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                block = Some(Block {
                    line: line(range.start),
                    info: info.into_string(),
                    text: String::new(),
                });
            }
            Event::Start(Tag::CodeBlock(CodeBlockKind::Indented)) => {
                page.indented.push(line(range.start));
            }
            Event::End(TagEnd::CodeBlock) => page.blocks.extend(block.take()),
            Event::Text(words) | Event::Code(words) => {
                let into = block.as_mut().map(|block| &mut block.text);
                if let Some(into) = into.or(heading.as_mut()) {
                    into.push_str(&words);
                }
            }
            _ => {}
        }
    }
    page
}

/// The anchor of a heading, as web forges and mdBook make it.
fn slug(heading: &str) -> String {
    let letters = heading.trim().chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        letter if letter.is_alphanumeric() || "-_".contains(letter) => Some(letter),
        _ => None,
    });
    letters.collect::<String>().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page() {
        let page = read(
            "# On `a`, and B\n\n[x](y.md#z) ![p](q.svg)\n\n## Twice\n## Twice\n\n```sh test\n[no](link)\n```\n\n    x\n",
        );
        let targets: Vec<(usize, &str)> = page
            .links
            .iter()
            .map(|link| (link.line, link.target.as_str()))
            .collect();
        assert_eq!(targets, [(3, "y.md#z"), (3, "q.svg")]);
        let anchors: Vec<&str> = page.anchors.iter().map(String::as_str).collect();
        assert_eq!(anchors, ["on-a-and-b", "twice", "twice-1"]);
        assert_eq!(page.blocks.len(), 1);
        assert_eq!(page.indented, [12]);
        assert_eq!(
            (page.blocks[0].line, page.blocks[0].info.as_str()),
            (8, "sh test")
        );
        assert_eq!(page.blocks[0].text, "[no](link)\n");
    }
}
