// SPDX-License-Identifier: GPL-2.0

//! The finished site: each link leads somewhere, and nothing of it is fetched from a network.

use super::{links, stage};
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What a page has: where it links to, what can be linked to in it, what it loads.
#[derive(Default)]
struct Page {
    targets: Vec<String>,
    ids: BTreeSet<String>,
    loads: Vec<String>,
}

/// Adds what is wrong to `found`; the numbers of pages and links looked at.
pub fn broken(site: &Path, found: &mut Vec<String>) -> Result<(usize, usize)> {
    let mut pages: BTreeMap<PathBuf, Page> = BTreeMap::new();
    for file in stage::files_below(site)? {
        let path = site.join(&file);
        let read = || fs::read_to_string(&path).with_context(|| path.display().to_string());
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("html") => drop(pages.insert(file, page(&read()?))),
            Some("css") => {
                let text = read()?;
                if ["@import url(http", "url(http", "url(\"http", "url('http"]
                    .iter()
                    .any(|word| text.contains(word))
                {
                    found.push(format!("{}: fetches from a network", file.display()));
                }
            }
            _ => {}
        }
    }
    let mut count = 0;
    for (path, page) in &pages {
        // Not reached by links, which it has from the top of whatever site it is shown in.
        if path == Path::new("404.html") {
            continue;
        }
        for target in page.loads.iter().filter(|target| target.contains("://")) {
            found.push(format!("{}: fetches {target}", path.display()));
        }
        for target in page.targets.iter().chain(&page.loads) {
            let target = target.replace("%20", " ");
            let Some((file, anchor)) = links::local(path, &target) else {
                continue;
            };
            count += 1;
            let there = match (pages.get(&file), &anchor) {
                (Some(page), Some(anchor)) => anchor.is_empty() || page.ids.contains(anchor),
                (Some(_), None) => true,
                (None, _) => site.join(&file).is_file(),
            };
            if !there {
                found.push(format!("{}: {target} leads nowhere", path.display()));
            }
        }
    }
    Ok((pages.len(), count))
}

/// Looks at the tags of a page, not at its text.
fn page(text: &str) -> Page {
    let mut page = Page::default();
    for tag in text.split('<').skip(1) {
        let tag = tag.split('>').next().unwrap_or("");
        let name = tag.split(char::is_whitespace).next().unwrap_or("");
        page.ids.extend(attribute(tag, "id"));
        if name == "a" {
            page.targets.extend(attribute(tag, "href"));
        } else if ["link", "script", "img", "iframe"].contains(&name) {
            page.loads.extend(attribute(tag, "href"));
            page.loads.extend(attribute(tag, "src"));
        }
    }
    page
}

/// The value of an attribute of a tag.
fn attribute(tag: &str, name: &str) -> Option<String> {
    let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
    let (value, _) = rest.split_once('"')?;
    Some(value.replace("&amp;", "&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site() {
        let site = std::env::temp_dir().join(format!("lab-html-{}", std::process::id()));
        fs::create_dir_all(site.join("a")).unwrap();
        fs::write(
            site.join("index.html"),
            "<h1 id=\"top\">x</h1><a href=\"a/b.html#here\">y</a><a href=\"no.html\">z</a>",
        )
        .unwrap();
        fs::write(
            site.join("a/b.html"),
            "<p id=\"here\"><a class=\"k\" href=\"../index.html#gone\">x</a><img src=\"https://example.org/i.png\">",
        )
        .unwrap();
        let mut found = Vec::new();
        let counted = broken(&site, &mut found).unwrap();
        fs::remove_dir_all(&site).unwrap();
        assert_eq!(counted, (2, 3));
        assert_eq!(
            found,
            [
                "a/b.html: fetches https://example.org/i.png",
                "a/b.html: ../index.html#gone leads nowhere",
                "index.html: no.html leads nowhere"
            ]
        );
    }
}
