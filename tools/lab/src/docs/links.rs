// SPDX-License-Identifier: GPL-2.0

//! Links between the checkout's Markdown files, and the summary that makes a site of them.

use super::markdown::{self, Page};
use crate::cache;
use crate::check;
use anyhow::Result;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// The contents of the site.
pub const SUMMARY: &str = "Documentation/SUMMARY.md";

/// All Markdown files of the checkout, by their path in it.
pub fn pages() -> Result<BTreeMap<PathBuf, Page>> {
    let mut pages = BTreeMap::new();
    for path in check::files()? {
        if path.extension().is_some_and(|extension| extension == "md") {
            let page = markdown::read(&check::read(&path)?);
            pages.insert(path, page);
        }
    }
    Ok(pages)
}

/// Complaints about links that lead nowhere, pages of `Documentation` that the summary does not name, and links
/// of the site's pages to Markdown files that it has not.
pub fn broken() -> Result<Vec<String>> {
    let pages = pages()?;
    let mut found = Vec::new();
    for (path, page) in &pages {
        for link in &page.links {
            let Some((file, anchor)) = local(path, &link.target) else {
                continue;
            };
            let at = format!("{}:{}: {}", path.display(), link.line, link.target);
            if !cache::top().join(&file).exists() {
                found.push(format!("{at}: there is no such file"));
            } else if let (Some(anchor), Some(target)) = (anchor, pages.get(&file)) {
                if !target.anchors.contains(&anchor) {
                    found.push(format!("{at}: there is no such heading"));
                }
            }
        }
    }
    let chosen = chosen(&pages);
    for path in twice(&chosen) {
        found.push(format!("{SUMMARY} names {} twice", path.display()));
    }
    for path in pages.keys() {
        if path.starts_with("Documentation") && path != Path::new(SUMMARY) && !chosen.contains(path)
        {
            found.push(format!("{SUMMARY} does not name {}", path.display()));
        }
    }
    for path in &chosen {
        for link in pages.get(path).map_or(&[][..], |page| &page.links) {
            let Some((file, _)) = local(path, &link.target) else {
                continue;
            };
            if pages.contains_key(&file) && !chosen.contains(&file) {
                found.push(format!(
                    "{}:{}: {} is not in {SUMMARY}",
                    path.display(),
                    link.line,
                    file.display()
                ));
            }
        }
    }
    Ok(found)
}

/// The pages that the summary names, in its order.
pub fn chosen(pages: &BTreeMap<PathBuf, Page>) -> Vec<PathBuf> {
    let summary = Path::new(SUMMARY);
    let links = pages.get(summary).map_or(&[][..], |page| &page.links);
    let files = links.iter().filter_map(|link| local(summary, &link.target));
    files.map(|(file, _)| file).collect()
}

/// The pages that are named more than once, of which mdBook makes no site.
fn twice(chosen: &[PathBuf]) -> Vec<&PathBuf> {
    let before = |at: usize| chosen.iter().take(at);
    let pages = chosen.iter().enumerate();
    pages
        .filter(|(at, path)| before(*at).any(|earlier| earlier == *path))
        .map(|(_, path)| path)
        .collect()
}

/// The file in the checkout that a link of `page` leads to, and the heading; `None` if it leads elsewhere.
pub fn local(page: &Path, target: &str) -> Option<(PathBuf, Option<String>)> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = match target.split_once('#') {
        Some((file, anchor)) => (file, Some(anchor.to_owned())),
        None => (target, None),
    };
    if file.is_empty() {
        return Some((page.to_path_buf(), anchor));
    }
    let mut path = page.parent().unwrap_or(Path::new("")).to_path_buf();
    for part in Path::new(file).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    Some((path, anchor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_one_place() {
        let pages: Vec<PathBuf> = ["a.md", "b.md", "a.md"].map(PathBuf::from).into();
        assert_eq!(twice(&pages), [Path::new("a.md")]);
        assert!(twice(&pages[..2]).is_empty());
    }

    #[test]
    fn targets() {
        let to = |target: &str| local(Path::new("Documentation/a.md"), target);
        let file = |path: &str| Some((PathBuf::from(path), None));
        assert_eq!(to("../README.md"), file("README.md"));
        assert_eq!(to("b.md"), file("Documentation/b.md"));
        assert_eq!(
            to("#x"),
            Some(("Documentation/a.md".into(), Some("x".into())))
        );
        assert_eq!(to("https://example.org/a.md"), None);
    }
}
