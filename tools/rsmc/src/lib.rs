// SPDX-License-Identifier: GPL-2.0
//! The `rsmc` command: programs over SMC sockets, and what became of those sockets.
//!
//! Each command has a module of its name; `netlink` talks to the kernel, `diag` and `fallback`
//! understand what it says. Everything that parses takes bytes or text and knows no files or
//! sockets, so that it is tested without a kernel. There is no unsafe code here.
#![cfg_attr(test, allow(clippy::disallowed_macros))]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod absent;
pub mod cgroup;
pub mod cli;
pub mod clock;
pub mod compat;
pub mod completion;
pub mod demote;
pub mod dev;
pub mod diag;
pub mod enable;
pub mod error;
pub mod fallback;
pub mod gid;
pub mod hardware;
pub mod link;
pub mod man;
pub mod module;
pub mod netlink;
pub mod pnet;
pub mod policy;
pub mod probe;
pub mod procs;
pub mod promotion;
pub mod reason;
pub mod report;
pub mod run;
pub mod settings;
pub mod ss;
pub mod stats;
pub mod system;
pub mod table;
pub mod tcp;
pub mod top;
pub mod ueid;
pub mod unload;
pub mod up;
pub mod visible;
pub mod watch;
pub mod why;
