// SPDX-License-Identifier: GPL-2.0

//! Other programs' own tests, for the conformance tests that name them in the plan. Nothing of them is in the
//! checkout or in the sysroot's list of packages: they are built, or fetched from the archive that the sysroot came
//! from, when such a test is about to run.

use crate::cache::{self, Key, Restart};
use crate::kernel::packages;
use crate::{progress, sysroot};
use anyhow::Result;
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};

/// Environment variable that names a checkout of nginx's tests.
const NGINX: &str = "RSMC_NGINX_TESTS";

/// One program's tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Suite {
    /// Go's, of the packages `net` and `net/http`.
    Go,
    /// nginx's, which are in no archive: those of [`NGINX`].
    Nginx,
    /// Redis's, and the Tcl that they are written in.
    Redis,
}

impl std::fmt::Display for Suite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Suite::Go => "go",
            Suite::Nginx => "nginx",
            Suite::Redis => "redis",
        })
    }
}

impl Suite {
    /// Returns the directory that holds it, made or fetched if need be; `None` when there is no way to have it, and
    /// the test is skipped.
    pub fn get(self) -> Result<Option<PathBuf>> {
        match self {
            Suite::Go => go().map(Some),
            Suite::Nginx => Ok(std::env::var_os(NGINX).map(PathBuf::from)),
            Suite::Redis => redis().map(Some),
        }
    }
}

/// Compiles the tests of two packages of Go's library. They run in the packages' directories, which the sysroot has.
fn go() -> Result<PathBuf> {
    const BUILD: &str = "export GOCACHE=$PWD/cache GOPATH=$PWD/path GOTOOLCHAIN=local CGO_ENABLED=0\n\
        out=$PWD && cd /usr/lib/go-1.24/src/net &&\n\
        go test -c -o $out/net.test net && go test -c -o $out/http.test net/http && rm -rf $out/cache $out/path";
    let sysroot = sysroot::get()?;
    let mut key = Key::new();
    key.add("build", BUILD.as_bytes());
    sysroot.packages_key(&mut key, &["golang-1.24-go", "golang-1.24-src"])?;
    cache::entry("tool", "go-tests", &key, Restart::Clean, |dir| {
        let mut command = sysroot.command("sh");
        command.args(["-ec", BUILD]).current_dir(dir);
        progress::run("tests of Go: building", &mut command, &dir.join("log"))
    })
}

/// Fetches the source of the archive's Redis, of which only the tests are kept, and Tcl.
fn redis() -> Result<PathBuf> {
    const WHAT: &str = "tests of Redis";
    let sysroot = sysroot::get()?;
    let mut key = Key::new();
    sysroot.packages_key(&mut key, &["redis-server"])?;
    cache::entry("packages", "redis-tests", &key, Restart::Clean, |dir| {
        let log = dir.join("log");
        let state = dir.join("apt");
        for name in ["lists/partial", "archives/partial"] {
            fs::create_dir_all(state.join(name))?;
        }
        let list = state.join("sources.list");
        fs::write(&list, with_sources(&sysroot.path)?)?;
        let apt = || {
            let mut command = packages::apt(&sysroot, &state, dir);
            command
                .arg("-o")
                .arg(format!("Dir::Etc::sourcelist={}", list.display()))
                .args(["-o", "Dir::Etc::sourceparts=-"]);
            command
        };
        let reading = format!("{WHAT}: reading the archive's index");
        progress::run(&reading, apt().args(packages::UPDATE), &log)?;
        let downloading = format!("{WHAT}: downloading");
        let tcl = ["download", "tcl8.6", "libtcl8.6"];
        progress::run(&downloading, apt().args(tcl), &log)?;
        let source = ["source", "--download-only", "--tar-only", "redis"];
        progress::run(&downloading, apt().args(source), &log)?;
        packages::unpack_debs(&sysroot, WHAT, dir)?;
        let mut unpack = sysroot.command("sh");
        unpack
            .args(["-ec", "tar -xf redis_*.orig.tar.* --strip-components=1 --wildcards --no-wildcards-match-slash '*/tests' && rm -r redis_* apt"])
            .current_dir(dir);
        progress::run(&format!("{WHAT}: unpacking"), &mut unpack, &log)
    })
}

/// The sysroot's list of archives, with their source packages.
fn with_sources(sysroot: &Path) -> Result<String> {
    let list = fs::read_to_string(sysroot.join("etc/apt/sources.list"))?;
    let mut both = String::new();
    for rest in list.lines().filter_map(|line| line.strip_prefix("deb ")) {
        both += &format!("deb {rest}\ndeb-src {rest}\n");
    }
    Ok(both)
}
