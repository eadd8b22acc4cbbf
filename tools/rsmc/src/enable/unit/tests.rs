// SPDX-License-Identifier: GPL-2.0
//! Names as systemd has them (systemd.unit(5), systemd-escape(1), systemd.slice(5)).

use super::*;

#[test]
fn names() {
    for (given, name, kind) in [
        ("nginx", "nginx.service", Kind::Service),
        ("nginx.service", "nginx.service", Kind::Service),
        ("php8.2-fpm", "php8.2-fpm.service", Kind::Service),
        ("app@1", "app@1.service", Kind::Service),
        ("app@", "app@.service", Kind::Service),
        (r"dev-a\x2db", r"dev-a\x2db.service", Kind::Service),
        ("user.slice", "user.slice", Kind::Slice),
        ("-.slice", "-.slice", Kind::Slice),
    ] {
        let unit = parse(given).unwrap();
        assert_eq!((unit.name.as_str(), unit.kind), (name, kind));
    }
    let long = "x".repeat(256);
    for bad in [
        "",
        ".",
        "..",
        "../../etc/passwd",
        "/etc/x.service",
        "a/b",
        "a b",
        "a\nb",
        "@",
        "@x",
        "@.service",
        ".service",
        "ä",
        "a%b",
        "*",
        "a--b.slice",
        "-a.slice",
        ".slice",
        &long,
    ] {
        let error = parse(bad).unwrap_err().to_string();
        assert!(error.contains("is no name of a unit"), "{bad}: {error}");
    }
    for (other, says) in [
        ("ssh.socket", "no processes"),
        ("a.timer", "no processes"),
        ("session-1.scope", "run --scope"),
    ] {
        let error = parse(other).unwrap_err().to_string();
        assert!(error.contains(says), "{other}: {error}");
    }
}

#[test]
fn slices_and_cgroups() {
    assert_eq!(slice_path("-.slice").as_deref(), Some(""));
    assert_eq!(slice_path("system.slice").as_deref(), Some("/system.slice"));
    assert_eq!(
        slice_path("a-b-c.slice").as_deref(),
        Some("/a.slice/a-b.slice/a-b-c.slice")
    );
    let cgroup = |name: &str| {
        let unit = parse(name).unwrap();
        unit.cgroup(&unit.default_slice()).unwrap()
    };
    assert_eq!(cgroup("nginx"), "/system.slice/nginx.service");
    assert_eq!(cgroup("memory"), "/system.slice/_memory.service");
    assert_eq!(cgroup("_a"), "/system.slice/__a.service");
    assert_eq!(
        cgroup("app@1"),
        "/system.slice/system-app.slice/app@1.service"
    );
    assert_eq!(
        cgroup("my-app@1"),
        r"/system.slice/system-my\x2dapp.slice/my-app@1.service"
    );
    assert_eq!(cgroup("app@"), "/system.slice/system-app.slice");
}
