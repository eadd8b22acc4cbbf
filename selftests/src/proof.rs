// SPDX-License-Identifier: GPL-2.0
//! Proof that a connection ran on the family under test, and on which path.

use crate::args::Args;
use crate::family::Family;
use crate::smcinfo::{self, MODE_FIRST, MODE_TCP};
use std::collections::BTreeMap;

/// Demands on what a connected socket says about itself.
#[derive(Clone, Debug)]
pub struct Proof {
    /// Wanted `mode` of `RSMC_INFO`; `None`: any decided one.
    pub mode: Option<u32>,
    /// Wanted reason; `None`: any that fits the mode.
    pub reason: Option<u32>,
    /// False: nothing is asked (`--info off`).
    pub ask: bool,
    /// The module under test is the in-tree one, which is asked by `sock_diag`, for the mode only;
    /// the thread must be in the socket's network namespace.
    pub foreign: bool,
}

impl Proof {
    /// From `--mode N|any` (default 1, fallback), `--reason 0x…` and `--info off`.
    pub fn from_args(a: &Args) -> Proof {
        let num = |s: &str| {
            let s = s
                .strip_prefix("0x")
                .map_or_else(|| s.parse().ok(), |h| u32::from_str_radix(h, 16).ok());
            s.unwrap_or_else(|| crate::args::bail("--mode and --reason take a number"))
        };
        Proof {
            mode: match a.opt("mode").unwrap_or("1") {
                "any" => None,
                m => Some(num(m)),
            },
            reason: a.opt("reason").map(num),
            ask: a.opt("info") != Some("off"),
            foreign: foreign(),
        }
    }

    /// Demands this mode, with any reason that fits it.
    pub fn of_mode(mode: u32) -> Proof {
        Proof {
            mode: Some(mode),
            reason: None,
            ask: true,
            foreign: foreign(),
        }
    }

    /// Returns whether the module under test is ours, and may be asked.
    pub fn is_ours(&self) -> bool {
        self.ask && !self.foreign
    }

    /// Checks a connected socket; the path in words, or what is wrong with it.
    pub fn check(&self, fam: Family, fd: i32) -> Result<String, String> {
        if fam == Family::Tcp || !self.ask {
            return Ok("not asked".into());
        }
        if self.foreign {
            return self.check_foreign(fd);
        }
        let i =
            smcinfo::info(fd).map_err(|e| format!("RSMC_INFO: {e}: not a socket of the family"))?;
        let text = format!(
            "mode={} reason={:#010x} peer={:#010x}",
            i.mode, i.reason, i.peer_diagnosis
        );
        let mode_ok = match self.mode {
            Some(m) => i.mode == m,
            None => i.mode <= 2,
        };
        let reason_ok = match self.reason {
            Some(r) => i.reason == r,
            // One that began as TCP may have none yet.
            None => i.mode == MODE_FIRST || (i.mode == MODE_TCP) == (i.reason != 0),
        };
        if mode_ok && reason_ok {
            Ok(text)
        } else {
            Err(format!("wrong path: {text}, wanted {self:?}"))
        }
    }

    fn check_foreign(&self, fd: i32) -> Result<String, String> {
        let mode = match crate::diag::mode(fd) {
            Ok(Some(m)) => u32::from(m),
            Ok(None) => return Err("sock_diag does not know the socket".into()),
            Err(e) => return Err(format!("sock_diag: {e}")),
        };
        match self.mode {
            Some(m) if m != mode => Err(format!("wrong path: mode={mode}, wanted {m}")),
            _ => Ok(format!("mode={mode}")),
        }
    }
}

/// True if the loaded module is the in-tree one.
fn foreign() -> bool {
    let has = |m: &str| std::path::Path::new("/sys/module").join(m).exists();
    has("smc") && !has("rsmc")
}

/// `/proc/net/smc_fallback` before and after something.
pub struct Counters(Option<BTreeMap<String, u64>>);

impl Counters {
    /// The present values in the calling thread's namespace.
    pub fn now() -> Counters {
        Counters(smcinfo::counters())
    }

    /// By how much the line that starts with `name` has grown since.
    pub fn grown(&self, name: &str) -> u64 {
        let sum = |m: &Option<BTreeMap<String, u64>>| -> u64 {
            m.iter()
                .flatten()
                .filter(|e| e.0.starts_with(name))
                .map(|e| *e.1)
                .sum()
        };
        sum(&smcinfo::counters()).saturating_sub(sum(&self.0))
    }
}
