// SPDX-License-Identifier: GPL-2.0

//! The version of packages, and the time of the files in them.

use super::git;
use crate::cache;
use anyhow::{bail, Context, Result};
use std::fs;

/// Version and time.
#[derive(Debug, PartialEq, Eq)]
pub struct Version {
    /// As dpkg compares it.
    pub text: String,
    /// Seconds since 1970.
    pub time: u64,
}

/// Tells them of the checkout: time and distance of its commit. Without git the
/// version is that of the programs and `SOURCE_DATE_EPOCH` must say the time.
pub fn get(given: Option<&str>) -> Result<Version> {
    let time = std::env::var("SOURCE_DATE_EPOCH").ok();
    let Some(time) = time.or_else(|| git(&["log", "-1", "--format=%ct"])) else {
        bail!(
            "this is no git checkout: set SOURCE_DATE_EPOCH to the time the packages are to have"
        );
    };
    let time = time
        .parse()
        .with_context(|| format!("SOURCE_DATE_EPOCH is no number: {time}"))?;
    let text = match given {
        Some(text) => text.to_owned(),
        None => {
            let described = git(&["describe", "--tags", "--long", "--match", "v[0-9]*"]);
            let count = git(&["rev-list", "--count", "HEAD"]);
            let commit = git(&["rev-parse", "--short=7", "HEAD"]);
            told(&base()?, described.as_deref(), count.zip(commit))
        }
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || ".+~".contains(c);
    if !text.starts_with(|c: char| c.is_ascii_digit()) || !text.chars().all(plain) {
        bail!("'{text}' is no version: a digit first, then letters, digits and . + ~");
    }
    Ok(Version { text, time })
}

/// The version in the manifest of `rsmc`.
fn base() -> Result<String> {
    let path = cache::top().join("tools/rsmc/Cargo.toml");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("version = "));
    let version = line.with_context(|| format!("{}: no version", path.display()))?;
    Ok(version.trim_matches('"').to_owned())
}

/// A commit with a tag `v1.2.3` is 1.2.3, later ones 1.2.3+N.gCOMMIT. Before the
/// tag of `base` it is `base`~N.gCOMMIT, which dpkg takes for older than `base`.
fn told(base: &str, described: Option<&str>, counted: Option<(String, String)>) -> String {
    let parts = described.and_then(|text| {
        let (rest, commit) = text.rsplit_once('-')?;
        let (tag, distance) = rest.rsplit_once('-')?;
        Some((tag.strip_prefix('v')?.replace('-', "~"), distance, commit))
    });
    match (parts, counted) {
        (Some((tag, "0", _)), _) => tag,
        (Some((tag, distance, commit)), _) if tag == base => format!("{tag}+{distance}.{commit}"),
        (_, Some((count, commit))) => format!("{base}~{count}.g{commit}"),
        _ => base.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::told;

    #[test]
    fn versions_grow() {
        let counted = || Some(("637".to_owned(), "abc1234".to_owned()));
        assert_eq!(told("0.1.0", None, counted()), "0.1.0~637.gabc1234");
        let tagged = |text| told("0.1.0", Some(text), counted());
        assert_eq!(tagged("v0.1.0-0-gabc1234"), "0.1.0");
        assert_eq!(tagged("v0.1.0-12-gabc1234"), "0.1.0+12.gabc1234");
        // The next version's manifest, after the tag of the last one.
        assert_eq!(tagged("v0.0.9-12-gabc1234"), "0.1.0~637.gabc1234");
        assert_eq!(tagged("v0.1.0-rc1-0-gabc1234"), "0.1.0~rc1");
        assert_eq!(told("0.1.0", None, None), "0.1.0");
    }
}
