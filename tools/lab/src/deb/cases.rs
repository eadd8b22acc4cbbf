// SPDX-License-Identifier: GPL-2.0

//! The cases of `lab test-packages`, and what each needs.

use crate::root::Setting;

/// Layer or guest that a case runs in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// The smallest Debian.
    Small,
    /// With lintian.
    Lintian,
    /// With autopkgtest.
    Autopkgtest,
    /// With the default kernel.
    Kernel,
    /// Compilers, DKMS and the headers of the default kernel.
    Dkms,
    /// The same, with the module built and its metadata kept.
    Built,
    /// A guest with the small root.
    Guest,
    /// Guests with Secure Boot, and the module of [`Base::Built`].
    SecureBoot,
    /// A guest for the metrics, and a root with Prometheus for them.
    Monitoring,
    /// None: the packages are made once more.
    Again,
}

/// One case.
pub struct Case {
    /// Its name, and the function's.
    pub name: &'static str,
    /// Where it runs.
    pub base: Base,
    /// Changes to that place.
    pub setting: Setting,
    /// Only with --long.
    pub long: bool,
}

const fn case(name: &'static str, base: Base) -> Case {
    Case {
        name,
        base,
        setting: Setting {
            offline: false,
            small: None,
        },
        long: matches!(base, Base::Built | Base::SecureBoot | Base::Again),
    }
}

const fn offline(mut case: Case) -> Case {
    case.setting.offline = true;
    case
}

const fn small(mut case: Case, path: &'static str, size: u32) -> Case {
    case.setting.small = Some((path, size));
    case
}

/// Leaves the modules of two kernels, which are booted with them.
pub const SECOND: &str = "dkms_second_kernel";

/// All of them, in order.
pub const CASES: &[Case] = &[
    case("lintian", Base::Lintian),
    case("autopkgtest", Base::Autopkgtest),
    case("install", Base::Small),
    case("install_for_kernel", Base::Kernel),
    case("upgrade", Base::Small),
    case("purge", Base::Small),
    case("dkms_interrupted", Base::Small),
    case("dkms_no_headers", Base::Small),
    offline(case("dkms_no_compiler", Base::Dkms)),
    offline(case("dkms_wrong_rustc", Base::Dkms)),
    offline(case("dkms_other_architecture", Base::Dkms)),
    offline(case("dkms_no_network", Base::Dkms)),
    small(
        case("dkms_no_space", Base::Dkms),
        "/var/cache/rsmc-dkms",
        100,
    ),
    case("dkms_no_source", Base::Dkms),
    case("dkms_killed", Base::Dkms),
    offline(case("dkms_built", Base::Built)),
    small(
        offline(case("dkms_full_at_install", Base::Built)),
        "/var/lib/dkms",
        9,
    ),
    offline(case("dkms_broken_source", Base::Built)),
    offline(case("dkms_kernel_removed", Base::Built)),
    case(SECOND, Base::Built),
    case("guest", Base::Guest),
    case("secure_boot", Base::SecureBoot),
    case("monitoring", Base::Monitoring),
    case("reproducible", Base::Again),
];
