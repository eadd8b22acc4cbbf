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
use smc_proto::handshake::driver::*;
use smc_proto::handshake::endpoint::*;
use smc_proto::handshake::{Acquired, Step, Want};
use smc_proto::llc::responder::LlcEvent;
use smc_proto::reason::Reason;
use smc_proto::wire::{clc, clc::proposal::Prefixes, ids::Mtu, llc::Frame};
pub struct ScriptEnd<'a>(&'a mut dyn Tcp);
pub trait Tcp {
    fn read(&mut self, buf: &mut [u8], peek: bool) -> Result<usize, StreamError>;
    fn group(&mut self) -> Result<Option<Acquired>, Reason>;
    fn link(&mut self) -> Result<(), Reason>;
    fn event(&mut self) -> Option<LlcEvent>;
    fn is(&self) -> bool;
    fn room(&self) -> Option<Room<'static>>;
}
pub struct Room<'a>(&'a mut Proposal);
impl core::ops::Deref for Room<'_> { type Target = Proposal; fn deref(&self) -> &Proposal { self.0 } }
impl core::ops::DerefMut for Room<'_> { fn deref_mut(&mut self) -> &mut Proposal { self.0 } }
impl<'a> Endpoint for ScriptEnd<'a> {
    type Buffer = [u8; clc::MAX_LEN];
    type Proposal = Room<'static>;
    fn now(&self) -> Instant { Instant(0) }
    fn buffer(&self) -> Option<Self::Buffer> { Some([0; clc::MAX_LEN]) }
    fn proposal(&self) -> Option<Room<'static>> { self.0.room() }
    fn admits(&mut self, _: &Step) -> bool { self.0.is() }
    fn send(&mut self, _: &[u8]) -> bool { self.0.is() }
    fn receive(&mut self, buf: &mut [u8]) -> Result<usize, StreamError> { self.0.read(buf, false) }
    fn peek(&mut self, buf: &mut [u8]) -> Result<usize, StreamError> { self.0.read(buf, true) }
    fn is_shut(&self) -> bool { self.0.is() }
    fn take_v1(&mut self, _: &Prefixes) -> Result<(), Reason> { self.0.link() }
    fn acquire(&mut self, _: &Want, _: Option<&RdmaEnd>) -> Result<Option<Acquired>, Reason> { self.0.group() }
    fn adopt(&mut self, _: bool, _: Mtu, _: &RdmaEnd) -> Result<(), Reason> { self.0.link() }
    fn to_rts(&mut self) -> Result<(), Reason> { self.0.link() }
    fn send_llc(&mut self, _: &Frame, _: bool) -> Result<(), Reason> { self.0.link() }
    fn take_llc(&mut self) -> Option<LlcEvent> { self.0.event() }
    fn is_link_lost(&self) -> bool { self.0.is() }
    fn expose(&mut self) {}
    fn agreed(&mut self, _: &Agreement) {}
    fn declined(&mut self) {}
}
pub fn advance_driver(d: &mut Driver<[u8; clc::MAX_LEN]>, e: &mut ScriptEnd<'_>) -> bool {
    matches!(d.advance(e), Progress::Done(_))
}
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
