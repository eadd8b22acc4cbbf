// SPDX-License-Identifier: GPL-2.0

//! The order of a crate's modules: `FLOORS` names its folders from the lowest to the highest, and an
//! import goes down, or stays in its folder.
//!
//! Within a folder files may import one another, but not in a circle. A file `x.rs` and the folder
//! `x/` that belongs to it are one; so are a `mod.rs` that defines something and its folder.

use super::{read, Complaints};
use anyhow::{bail, Context, Result};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Item, UseTree};

/// A place in the tree of modules, without the crate's name.
type Place = Vec<String>;

/// The crates that have floors: their folder and their root file.
const CRATES: [(&str, &str); 3] = [
    ("rust/kapi", "kapi.rs"),
    ("rust/smc", "smc.rs"),
    ("rust/proto", "smc_proto.rs"),
];

/// No module imports from a higher floor, and none in a circle.
pub fn floors() -> Result<Complaints> {
    let mut found = Vec::new();
    for (folder, root) in CRATES {
        let floors = order(&read(&Path::new(folder).join("FLOORS"))?)?;
        let house = House::read(folder, root)?;
        found.extend(house.complaints(&floors));
    }
    Ok(found)
}

/// Reads which floor each top module is on, 0 being the lowest.
fn order(text: &str) -> Result<BTreeMap<String, usize>> {
    let mut floors = BTreeMap::new();
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or(""));
    for (floor, line) in lines.filter(|line| !line.trim().is_empty()).enumerate() {
        for name in line.split_whitespace() {
            if floors.insert(name.to_owned(), floor).is_some() {
                bail!("FLOORS names {name} twice");
            }
        }
    }
    Ok(floors)
}

/// A file, and what it imports.
struct Module {
    file: PathBuf,
    /// Items that a `mod.rs` passes on under names of its own.
    passed_on: BTreeMap<String, Place>,
    /// True when it defines something.
    defines: bool,
    imports: Vec<(usize, Place)>,
}

/// The modules of a crate.
struct House {
    folder: PathBuf,
    root: String,
    modules: BTreeMap<Place, Module>,
}

impl House {
    fn read(folder: &str, root: &str) -> Result<Self> {
        let mut house = Self {
            folder: folder.into(),
            root: root.trim_end_matches(".rs").to_owned(),
            modules: BTreeMap::new(),
        };
        house.enter(Path::new(root), Vec::new())?;
        Ok(house)
    }

    /// Reads a file and those that it declares.
    fn enter(&mut self, file: &Path, place: Place) -> Result<()> {
        let path = self.folder.join(file);
        let tree = syn::parse_file(&read(&path)?)
            .with_context(|| format!("{}: no Rust", path.display()))?;
        let mut imports = Imports {
            place: place.clone(),
            found: Vec::new(),
        };
        imports.visit_file(&tree);
        let mut module = Module {
            file: path.clone(),
            passed_on: BTreeMap::new(),
            defines: false,
            imports: imports.found,
        };
        let mut below = Vec::new();
        for item in &tree.items {
            match item {
                Item::Mod(item) if item.content.is_none() => below.push(item.ident.to_string()),
                Item::Use(item) => {
                    for (path, name) in paths(&item.tree) {
                        // A path without a beginning is one of this module's own children.
                        let path = match below.contains(path.first().unwrap_or(&String::new())) {
                            true => [&["self".to_owned()], &path[..]].concat(),
                            false => path,
                        };
                        if let (Some(place), Some(name)) = (absolute(&path, &place), name) {
                            module.passed_on.insert(name, place);
                        }
                    }
                }
                _ => module.defines = true,
            }
        }
        self.modules.insert(place.clone(), module);
        let is_folder = file.file_name().is_some_and(|name| name == "mod.rs") || place.is_empty();
        let here = match is_folder {
            true => file.parent().unwrap_or(Path::new("")).to_owned(),
            false => file.with_extension(""),
        };
        for name in below {
            let next: Place = place.iter().cloned().chain([name.clone()]).collect();
            let files = [
                here.join(format!("{name}.rs")),
                here.join(&name).join("mod.rs"),
            ];
            if let Some(file) = files
                .iter()
                .find(|file| crate::cache::top().join(&self.folder).join(file).exists())
            {
                self.enter(file, next)?;
            }
        }
        Ok(())
    }

    /// The module in which the thing at `place` is defined.
    fn defined_in(&self, place: &Place) -> Place {
        let mut place = place.clone();
        for _ in 0..8 {
            let depth = (0..=place.len())
                .rev()
                .find(|depth| self.modules.contains_key(&place[..*depth]))
                .unwrap_or(0);
            let Some(name) = place.get(depth) else {
                return place;
            };
            match self.modules[&place[..depth]].passed_on.get(name) {
                Some(other) => {
                    let rest = place[depth + 1..].to_vec();
                    place = other.iter().cloned().chain(rest).collect();
                }
                None => return place[..depth].to_vec(),
            }
        }
        place
    }

    /// The file or folder that counts as one.
    fn unit(&self, place: &Place) -> Place {
        for depth in 1..=place.len() {
            let Some(module) = self.modules.get(&place[..depth]) else {
                break;
            };
            let is_folder = module.file.ends_with("mod.rs");
            if !is_folder || module.defines {
                return place[..depth].to_vec();
            }
        }
        place.clone()
    }

    fn top<'a>(&'a self, place: &'a Place) -> &'a str {
        place.first().unwrap_or(&self.root)
    }

    fn complaints(&self, floors: &BTreeMap<String, usize>) -> Complaints {
        let mut found = Vec::new();
        let mut arrows: BTreeMap<Place, BTreeSet<Place>> = BTreeMap::new();
        for (place, module) in &self.modules {
            let from = self.top(place);
            // The root has everything below it.
            let floor = match place.is_empty() {
                true => Some(&usize::MAX),
                false => floors.get(from),
            };
            let Some(floor) = floor else {
                found.push(format!(
                    "{}: FLOORS does not name {from}",
                    module.file.display()
                ));
                continue;
            };
            for (line, import) in &module.imports {
                let target = self.defined_in(import);
                let to = self.top(&target);
                let up = floors.get(to).is_none_or(|other| other >= floor);
                if from != to && up {
                    found.push(format!(
                        "{}:{line}: {from} imports from {to}, which is not below it",
                        module.file.display()
                    ));
                }
                let (unit, other) = (self.unit(place), self.unit(&target));
                if unit != other && !other.is_empty() && !unit.starts_with(&other[..]) {
                    arrows.entry(unit).or_default().insert(other);
                }
            }
        }
        found.extend(circles(&arrows).iter().map(|circle| {
            let names: Vec<String> = circle.iter().map(|place| place.join("/")).collect();
            format!(
                "{}: a circle: {}",
                self.folder.display(),
                names.join(" -> ")
            )
        }));
        found
    }
}

/// Finds a circle through each module that is on one, once.
fn circles(arrows: &BTreeMap<Place, BTreeSet<Place>>) -> Vec<Vec<Place>> {
    let mut found: Vec<Vec<Place>> = Vec::new();
    for start in arrows.keys() {
        if found.iter().any(|circle| circle.contains(start)) {
            continue;
        }
        let mut ways = vec![vec![start.clone()]];
        let mut seen = BTreeSet::new();
        while let Some(way) = ways.pop() {
            let next = way.last().and_then(|last| arrows.get(last));
            for place in next.into_iter().flatten() {
                let longer: Vec<Place> = way.iter().cloned().chain([place.clone()]).collect();
                if place == start {
                    found.push(longer);
                    ways.clear();
                    break;
                }
                if seen.insert(place.clone()) {
                    ways.push(longer);
                }
            }
        }
    }
    found
}

/// Turns a path as written in the module `place` into one from the crate's root; none if it leads out of
/// the crate.
fn absolute(path: &[String], place: &Place) -> Option<Place> {
    let mut here = match path.first().map(String::as_str) {
        Some("crate") => Vec::new(),
        Some("self" | "super") => place.clone(),
        _ => return None,
    };
    let mut rest = path;
    while let Some((first, others)) = rest.split_first() {
        match first.as_str() {
            "crate" | "self" => (),
            "super" => drop(here.pop()),
            _ => break,
        }
        rest = others;
    }
    here.extend(rest.iter().cloned());
    Some(here)
}

/// The paths of a `use`, each with the name that it gets.
fn paths(tree: &UseTree) -> Vec<(Place, Option<String>)> {
    fn walk(tree: &UseTree, before: &Place, out: &mut Vec<(Place, Option<String>)>) {
        let with = |name: &syn::Ident| -> Place {
            before.iter().cloned().chain([name.to_string()]).collect()
        };
        match tree {
            UseTree::Path(path) => walk(&path.tree, &with(&path.ident), out),
            UseTree::Name(name) if name.ident == "self" => {
                out.push((before.clone(), before.last().cloned()));
            }
            UseTree::Name(name) => out.push((with(&name.ident), Some(name.ident.to_string()))),
            UseTree::Rename(name) => out.push((with(&name.ident), Some(name.rename.to_string()))),
            UseTree::Glob(_) => out.push((before.clone(), None)),
            UseTree::Group(group) => group.items.iter().for_each(|tree| walk(tree, before, out)),
        }
    }
    let mut out = Vec::new();
    walk(tree, &Vec::new(), &mut out);
    out
}

/// Collects the paths that lead into the crate itself.
struct Imports {
    place: Place,
    found: Vec<(usize, Place)>,
}

impl Imports {
    fn add(&mut self, line: usize, path: &[String]) {
        let place = absolute(path, &self.place);
        if let Some(place) = place.filter(|_| path.len() > 1) {
            self.found.push((line, place));
        }
    }

    /// Looks for paths among the words of a macro's call.
    fn scan(&mut self, tokens: TokenStream) {
        let mut path: Place = Vec::new();
        let mut line = 0;
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) if colons == 2 && !path.is_empty() => {
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Ident(ident) => {
                    self.add(line, &path);
                    line = ident.span().start().line;
                    path = vec![ident.to_string()];
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                other => {
                    self.add(line, &path);
                    path.clear();
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.scan(group.stream());
                    }
                }
            }
        }
        self.add(line, &path);
    }
}

impl<'ast> Visit<'ast> for Imports {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.place.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.place.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        for (path, _) in paths(&item.tree) {
            self.add(item.span().start().line, &path);
        }
    }

    /// `pub(crate)` imports nothing.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Place = path
            .segments
            .iter()
            .map(|part| part.ident.to_string())
            .collect();
        self.add(path.span().start().line, &names);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.scan(call.tokens.clone());
        visit::visit_macro(self, call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str) -> Place {
        path.split("::").map(str::to_owned).collect()
    }

    #[test]
    fn order_counts_from_the_lowest() {
        let floors = order("# comment\nhost # below\nconn link\n\nsmc\n").unwrap();
        assert_eq!(floors["host"], 0);
        assert_eq!(floors["conn"], floors["link"]);
        assert_eq!(floors["smc"], 2);
        assert!(order("a\na\n").is_err());
    }

    #[test]
    fn paths_lead_from_the_root() {
        let here = place("carrier::rdma::group");
        assert_eq!(
            absolute(&place("super::slab::Lease"), &here),
            Some(place("carrier::rdma::slab::Lease"))
        );
        assert_eq!(
            absolute(&place("super::super::x"), &here),
            Some(place("carrier::x"))
        );
        assert_eq!(absolute(&place("crate::conn"), &here), Some(place("conn")));
        assert_eq!(absolute(&place("kapi::conn"), &here), None);
    }

    #[test]
    fn macros_are_looked_into() {
        let mut imports = Imports {
            place: Vec::new(),
            found: Vec::new(),
        };
        imports.scan("f(crate::conn::now(), self.x, a::b)".parse().unwrap());
        let places: Vec<Place> = imports.found.into_iter().map(|(_, place)| place).collect();
        assert!(places.contains(&place("conn::now")));
        assert_eq!(
            places
                .iter()
                .filter(|place| place.first().is_some_and(|name| name == "a"))
                .count(),
            0
        );
    }

    #[test]
    fn a_circle_is_found_once() {
        let arrows = BTreeMap::from([
            (place("a"), BTreeSet::from([place("b")])),
            (place("b"), BTreeSet::from([place("c"), place("a")])),
            (place("c"), BTreeSet::new()),
        ]);
        assert_eq!(circles(&arrows).len(), 1);
        assert_eq!(circles(&arrows)[0].len(), 3);
    }
}
