// SPDX-License-Identifier: GPL-2.0
//! The absence of an SMC module, and its cure: what this kernel's module directory, its
//! demand for signatures and DKMS tell without being root.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// End of a module file that is signed.
const SIGNED: &[u8] = b"~Module signature appended~\n";
/// Certificates of the keys that `dkms` signs with unless it is told otherwise, on Debian and on Ubuntu.
const CERTIFICATES: [&str; 2] = ["/var/lib/dkms/mok.pub", "/var/lib/shim-signed/mok/MOK.der"];

/// A module file of the running kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum File {
    Missing,
    /// Compressed ones are not looked into: they count as signed.
    There {
        signed: bool,
    },
}

/// The line for a kernel without SMC.
pub fn line() -> String {
    let release = release();
    let modules = Path::new("/lib/modules").join(&release);
    let cure = cure(
        &release,
        find(&modules),
        enforced(),
        Path::new("/usr/sbin/rsmc-dkms").exists(),
        &certificate(),
    );
    format!("no SMC in this kernel: neither rsmc nor smc is loaded ({cure})")
}

/// The next step, in the words of a shell where that is possible.
fn cure(release: &str, file: File, enforced: bool, dkms: bool, certificate: &str) -> String {
    let enrol = format!("mokutil --import {certificate}, restart and confirm the key");
    match file {
        File::Missing if dkms => {
            format!("there is no rsmc.ko for {release}: run rsmc-dkms as root, which builds it or says what is missing")
        }
        File::Missing => format!(
            "there is no rsmc.ko for {release}: install rsmc-modules-{release}, or rsmc-dkms and linux-headers-{release}"
        ),
        File::There { signed: true } if enforced => format!(
            "modprobe rsmc; this kernel takes signed modules only, and where it says 'Key was rejected': {enrol}"
        ),
        File::There { signed: false } if enforced => format!(
            "this kernel takes signed modules only, as with Secure Boot, and its rsmc.ko is not signed: \
             the package rsmc-dkms builds one that DKMS signs; then {enrol}"
        ),
        File::There { .. } => "modprobe rsmc".into(),
    }
}

fn release() -> String {
    let name = rustix::system::uname();
    name.release().to_string_lossy().into_owned()
}

/// Looks the module up as modprobe does, in the index of a kernel's modules.
fn find(modules: &Path) -> File {
    let index = fs::read_to_string(modules.join("modules.dep")).unwrap_or_default();
    let path = index.lines().find_map(|line| {
        let path = line.split_once(':')?.0;
        let name = path.rsplit('/').next()?;
        name.starts_with("rsmc.ko").then(|| modules.join(path))
    });
    match path {
        Some(path) if path.is_file() => File::There {
            signed: path.extension().is_some_and(|end| end != "ko") || is_signed(&path),
        },
        _ => File::Missing,
    }
}

fn is_signed(path: &Path) -> bool {
    let end = || -> std::io::Result<Vec<u8>> {
        let mut file = fs::File::open(path)?;
        let back = i64::try_from(SIGNED.len()).unwrap_or(0);
        file.seek(SeekFrom::End(-back))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    end().is_ok_and(|bytes| bytes == SIGNED)
}

/// True if this kernel takes signed modules only.
fn enforced() -> bool {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let lockdown = read("/sys/kernel/security/lockdown");
    let locked = lockdown.contains('[') && !lockdown.contains("[none]");
    locked || read("/sys/module/module/parameters/sig_enforce").trim() == "Y"
}

/// The certificate of the key that `dkms` signs with.
fn certificate() -> String {
    let mut files = vec![PathBuf::from("/etc/dkms/framework.conf")];
    if let Ok(entries) = fs::read_dir("/etc/dkms/framework.conf.d") {
        files.extend(entries.flatten().map(|entry| entry.path()));
    }
    files.sort();
    let texts = files
        .iter()
        .map(|file| fs::read_to_string(file).unwrap_or_default());
    let named = texts.filter_map(|text| configured(&text)).last();
    let usual = CERTIFICATES.iter().find(|path| Path::new(path).exists());
    named.unwrap_or_else(|| (*usual.unwrap_or(&CERTIFICATES[0])).to_owned())
}

/// The certificate that a configuration of `dkms` names.
fn configured(text: &str) -> Option<String> {
    let line = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("mok_certificate="));
    let path = line.last()?.trim().trim_matches(['"', '\'']);
    path.starts_with('/').then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_its_cure() {
        let told = |file, enforced, dkms| cure("7.2.1-x", file, enforced, dkms, "/k.pub");
        let (signed, unsigned) = (File::There { signed: true }, File::There { signed: false });
        assert_eq!(told(signed, false, true), "modprobe rsmc");
        assert_eq!(told(unsigned, false, false), "modprobe rsmc");
        let missing = told(File::Missing, true, false);
        assert!(
            missing.contains("no rsmc.ko for 7.2.1-x: install rsmc-modules-7.2.1-x,"),
            "{missing}"
        );
        assert!(told(File::Missing, false, true).contains("run rsmc-dkms as root"));
        for file in [signed, unsigned] {
            let line = told(file, true, true);
            assert!(line.contains("mokutil --import /k.pub"), "{line}");
        }
        assert!(told(unsigned, true, true).contains("is not signed"));
    }

    #[test]
    fn files_are_found_and_their_signatures() {
        let directory = std::env::temp_dir().join(format!("rsmc-absent-{}", std::process::id()));
        fs::create_dir_all(directory.join("updates")).unwrap();
        assert_eq!(find(&directory), File::Missing);
        let dep = "kernel/net/rsmc-not.ko:\nupdates/rsmc.ko: kernel/ib_core.ko\n";
        fs::write(directory.join("modules.dep"), dep).unwrap();
        assert_eq!(find(&directory), File::Missing);
        let file = directory.join("updates/rsmc.ko");
        fs::write(&file, "ELF").unwrap();
        assert_eq!(find(&directory), File::There { signed: false });
        fs::write(&file, [b"ELF".as_slice(), SIGNED].concat()).unwrap();
        assert_eq!(find(&directory), File::There { signed: true });
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn dkms_may_have_another_key() {
        let text = "# mok_certificate=/a\nmok_certificate=\"/etc/keys/my.der\"\n";
        assert_eq!(configured(text).as_deref(), Some("/etc/keys/my.der"));
        assert_eq!(configured("sign_file=/x\n"), None);
    }
}
