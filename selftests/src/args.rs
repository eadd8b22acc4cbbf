// SPDX-License-Identifier: GPL-2.0
//! The command line every program understands: `--name value` pairs, bare words after them.

use crate::family::{Family, Ip};

/// Parsed command line.
pub struct Args {
    opts: Vec<(String, String)>,
    /// Words that are not options.
    pub words: Vec<String>,
}

impl Args {
    /// Reads the process's arguments; `--x` followed by another `--` counts as `--x 1`.
    pub fn get() -> Args {
        let v: Vec<String> = std::env::args().skip(1).collect();
        let (mut opts, mut words, mut i) = (Vec::new(), Vec::new(), 0);
        while i < v.len() {
            match v[i].strip_prefix("--") {
                Some(n) => match n.split_once('=') {
                    Some((n, val)) => opts.push((n.into(), val.into())),
                    None if v.get(i + 1).is_some_and(|x| !x.starts_with("--")) => {
                        opts.push((n.into(), v[i + 1].clone()));
                        i += 1;
                    }
                    None => opts.push((n.into(), "1".into())),
                },
                None => words.push(v[i].clone()),
            }
            i += 1;
        }
        Args { opts, words }
    }

    /// Value of the last `--name`.
    pub fn opt(&self, name: &str) -> Option<&str> {
        self.opts
            .iter()
            .rev()
            .find(|o| o.0 == name)
            .map(|o| o.1.as_str())
    }

    /// Numeric value of `--name`, with k, m, g suffixes, or `default`.
    pub fn num(&self, name: &str, default: u64) -> u64 {
        let Some(s) = self.opt(name) else {
            return default;
        };
        let (d, m) = match s.chars().last() {
            Some('k') => (&s[..s.len() - 1], 1 << 10),
            Some('m') => (&s[..s.len() - 1], 1 << 20),
            Some('g') => (&s[..s.len() - 1], 1 << 30),
            _ => (s, 1),
        };
        match d.parse::<u64>() {
            Ok(n) => n * m,
            Err(_) => bail(&format!("--{name}: {s} is not a number")),
        }
    }

    /// `--family`, comma separated; default `tcp`.
    pub fn families(&self) -> Vec<Family> {
        let s = self.opt("family").unwrap_or("tcp");
        s.split(',')
            .map(|w| Family::parse(w).unwrap_or_else(|| bail("--family tcp|inet|smc")))
            .collect()
    }

    /// `--ip`, comma separated; default all.
    pub fn ips(&self) -> Vec<Ip> {
        match self.opt("ip") {
            None => Ip::ALL.to_vec(),
            Some(s) => s
                .split(',')
                .map(|w| Ip::parse(w).unwrap_or_else(|| bail("--ip v4|v6|mapped")))
                .collect(),
        }
    }
}

/// Says why the command line is wrong and exits with 2.
pub fn bail(s: &str) -> ! {
    eprintln!("{s}");
    std::process::exit(2)
}
