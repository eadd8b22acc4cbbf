// SPDX-License-Identifier: GPL-2.0

//! The crate as the kernel compiles it (optimized, overflow checks on) contains
//! no call into the panic machinery: the compiler has proven every index, slice
//! and addition.
//!
//! A new call shows up here as a symbol name; the way out is checked access
//! (`get`, `split_at_checked`, `checked_add`, `saturating_sub`), not this test.

use std::{
    env, fs,
    path::{
        Path,
        PathBuf, //
    },
    process::Command,
};

fn tmp(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Compiles `source` to an rlib and an object, and returns the symbols the object
/// wants of the panic machinery.
fn panic_symbols(source: &Path, name: &str) -> Vec<String> {
    let object = tmp(&format!("{name}.o"));
    let status = Command::new(env::var_os("RUSTC").unwrap_or("rustc".into()))
        .args(["--edition=2021", "--crate-type=rlib", "--crate-name", name])
        .args(["-Copt-level=2", "-Coverflow-checks=on", "-Cpanic=abort"])
        .args(["-Ccodegen-units=1", "-Cdebuginfo=0", "--cap-lints=allow"])
        .arg(format!("--emit=obj={}", object.display()))
        .arg(format!(
            "--emit=metadata={}",
            tmp(&format!("lib{name}.rmeta")).display()
        ))
        .arg(format!("-L{}", env!("CARGO_TARGET_TMPDIR")))
        .arg(source)
        .status()
        .expect("rustc runs");
    assert!(status.success());
    let bytes = fs::read(&object).unwrap();
    bytes
        .split(|b| *b == 0)
        .filter_map(|s| std::str::from_utf8(s).ok())
        .filter(|s| s.contains("4core"))
        .filter(|s| s.contains("9panicking") || s.contains("_fail"))
        .map(String::from)
        .collect()
}

/// Generic code, which is compiled where it is used.
const USER: &str = "
#![no_std]
extern crate smc_proto;
use smc_proto::wire::clc::*;
type Reader<'a> = ClcReader<&'a mut [u8]>;
type BoxedReader = ClcReader<[u8; 652]>;
pub fn new(buf: &mut [u8]) -> Reader<'_> { ClcReader::new(buf, MsgType::Accept) }
pub fn space<'a>(r: &'a mut Reader<'_>) -> &'a mut [u8] { r.space() }
pub fn advance(r: &mut Reader<'_>, n: usize) -> bool { r.advance(n).is_ok() }
pub fn feed(r: &mut Reader<'_>, b: &[u8]) -> bool { r.feed(b).is_ok() }
pub fn message<'a>(r: &'a Reader<'_>) -> Option<RawMessage<'a>> { r.message() }
pub fn boxed_advance(r: &mut BoxedReader, n: usize) -> bool { r.advance(n).is_ok() }
pub fn boxed_feed(r: &mut BoxedReader, b: &[u8]) -> bool { r.feed(b).is_ok() }
pub fn boxed_message(r: &BoxedReader) -> Option<RawMessage<'_>> { r.message() }
use smc_proto::group::*;
use smc_proto::llc::rtoken;
use smc_proto::time::Instant;
use smc_proto::wire::ids::AlertToken;
type G<'a> = Group<&'a mut [rtoken::Entry<1>], &'a mut [u32]>;
pub fn on_llc(g: &mut G<'_>, b: &[u8], now: Instant) -> bool { g.on_llc(b, now).0.is_some() }
pub fn on_timer(g: &mut G<'_>, now: Instant) -> Todo { g.on_timer(now) }
pub fn add_conn(g: &mut G<'_>) -> bool { g.add_conn().is_some() }
pub fn remove_conn(g: &mut G<'_>, t: AlertToken, now: Instant) -> bool { g.remove_conn(t, now) }
pub fn end(g: &mut G<'_>, now: Instant) -> Todo { g.end(EndReason::Idle, now) }
pub fn rtoken(g: &mut G<'_>, r: rtoken::Region) -> bool { g.rtokens.add(0, r).is_some() }
pub fn rtokens(g: &G<'_>) -> usize { g.rtokens.len() }
";

#[test]
fn no_panic_in_the_object() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("smc_proto.rs");
    assert_eq!(panic_symbols(&root, "smc_proto"), Vec::<String>::new());
    let user = tmp("user.rs");
    fs::write(&user, USER.replace("pub fn", "#[inline(never)] pub fn")).unwrap();
    assert_eq!(panic_symbols(&user, "user"), Vec::<String>::new());
}

/// The test can fail: an index that may be out of range is seen, an addition that
/// may overflow, too.
#[test]
fn panics_are_seen() {
    for (name, body) in [
        ("panicky_index", "s[i]"),
        ("panicky_slice", "s[i..].len() as u8"),
        ("panicky_add", "s.first().copied().unwrap_or(0) + i as u8"),
    ] {
        let source = tmp(&format!("{name}.rs"));
        let text = format!(
            "#![no_std]\n#[inline(never)]\npub fn at(s: &[u8], i: usize) -> u8 {{ {body} }}\n"
        );
        fs::write(&source, text).unwrap();
        assert!(!panic_symbols(&source, name).is_empty(), "{name}");
    }
}
