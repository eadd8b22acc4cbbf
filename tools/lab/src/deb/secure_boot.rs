// SPDX-License-Identifier: GPL-2.0

//! The case `secure_boot`: the module that DKMS built and signed, in guests that boot
//! as a machine with Secure Boot does.

use super::guest;
use super::test::release;
use crate::cache;
use crate::data::Data;
use crate::guest::cluster::Options;
use crate::guest::firmware::{Answer, Firmware};
use crate::progress;
use crate::root;
use anyhow::Result;
use std::fs;
use std::path::Path;

/// Makes the layer with the firmware and the signed loaders, and mokutil as packages for the guest.
const LAYER: &str = "\
mkdir -p /srv/mokutil/partial
apt-get -q update
apt-get -qy install --no-install-recommends --download-only -o Dir::Cache::archives=/srv/mokutil mokutil
rm -r /srv/mokutil/partial /srv/mokutil/lock
apt-get -qy install --no-install-recommends ovmf shim-signed grub-efi-amd64-signed
apt-get clean
";

/// What MokManager asks after `mokutil --import`, and what a user answers.
const CONFIRM: &[Answer] = &[
    answer("Press any key to perform MOK management", &[ENTER]),
    answer("Enroll MOK", &[DOWN, ENTER]),
    answer("View key 0", &[DOWN, ENTER]),
    answer("Enroll the key(s)?", &[DOWN, ENTER]),
    answer("Password:", &[PASSWORD, ENTER]),
    answer("Reboot", &[ENTER]),
];
const ENTER: &str = "\r";
const DOWN: &str = "\x1b[B";
/// For one restart only: `mokutil` asks for it, and so does MokManager.
const PASSWORD: &str = "rsmc";

const fn answer(to: &'static str, keys: &'static [&'static str]) -> Answer {
    Answer { to, keys }
}

/// Runs it with the packages and a root in which DKMS has built the module; true if it passed, and what it said.
pub fn run(debs: &Path, built: &Path, work: &Path) -> Result<(bool, Vec<String>)> {
    let layer = root::small()?.with("secure-boot", LAYER)?;
    let dir = work.join("secure_boot");
    cache::remove(&dir)?;
    let machine = dir.join("machine");
    fs::create_dir_all(&machine)?;
    let tests = cache::top().join("tools/deb/test");
    let bound: [(&Path, &str); 2] = [(&machine, "/machine"), (&tests, "/test")];
    let mut lay_out = layer.command(&dir, root::Setting::default(), &bound)?;
    lay_out.args(["sh", "/run/test/machine.sh"]);
    progress::run("a machine with Secure Boot", &mut lay_out, &dir.join("log"))?;

    let stage = guest::stage(debs)?;
    stage.copy_directory(&machine.join("mokutil"), "mokutil")?;
    fs::create_dir_all(stage.path.join("dkms"))?;
    let module = guest::built(built, &release(Data::default_flavour())?)?;
    stage.copy(&module, "dkms/rsmc.ko")?;
    stage.copy(&built.join("upper/var/lib/dkms/mok.pub"), "dkms/mok.pub")?;

    let firmware = Firmware {
        code: machine.join("code"),
        variables: machine.join("variables"),
        partition: machine.join("partition"),
    };
    let guest = |state: &str| {
        let options = Options {
            firmware: Some(firmware.clone()),
            ..Options::default()
        };
        let log = work.join(format!("secure_boot-{state}.log"));
        let script = ["secure_boot.sh", state, PASSWORD];
        guest::run(&stage, options, &script, &log)
    };
    let (mut fine, mut lines) = guest("refused")?;
    if fine {
        firmware.answer(CONFIRM, &work.join("secure_boot-confirm.log"))?;
        lines.push("MokManager enrols the key".into());
        let (loaded, more) = guest("enrolled")?;
        fine = loaded;
        lines.extend(more);
    }
    cache::remove(&dir)?;
    Ok((fine, lines))
}
