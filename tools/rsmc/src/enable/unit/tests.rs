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

#[test]
fn what_systemd_says() {
    let mut unit = parse("redis").unwrap();
    let place = answered(
        &mut unit,
        "Id=redis-server.service\nLoadState=loaded\nActiveState=active\nSlice=system.slice\n\
         ControlGroup=/system.slice/redis-server.service\nTriggeredBy=redis.socket a.timer\n",
    )
    .unwrap();
    assert_eq!(unit.name, "redis-server.service");
    assert_eq!(place.cgroup, "/system.slice/redis-server.service");
    assert_eq!(place.sockets, ["redis.socket"]);
    assert!(place.active);
    let text =
        "Id=a.service\nLoadState=loaded\nActiveState=inactive\nSlice=x-y.slice\nControlGroup=\n";
    let place = answered(&mut parse("a").unwrap(), text).unwrap();
    assert_eq!(place.cgroup, "/x.slice/x-y.slice/a.service");
    assert!(!place.active);
    for state in ["not-found", "masked", "bad-setting"] {
        let text = format!("Id=a.service\nLoadState={state}\n");
        assert!(answered(&mut parse("a").unwrap(), &text).is_err());
    }
}

#[test]
fn units_of_files() {
    let root = std::env::temp_dir().join(format!("rsmc-units-{}", std::process::id()));
    let _ = fs::remove_dir_all(&root);
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let link = |target: &str, path: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, path).unwrap();
    };
    write("usr/lib/systemd/system/redis-server.service", "[Service]\n");
    write(
        "usr/lib/systemd/system/in.service",
        "[Service]\nSlice=web.slice\n",
    );
    write(
        "etc/systemd/system/in.service.d/9.conf",
        "[Service]\nSlice = db\n",
    );
    write("usr/lib/systemd/system/app@.service", "[Service]\n");
    write(
        "usr/lib/systemd/system/odd.service",
        "[Service]\nSlice=a-%i.slice\n",
    );
    link(
        "/usr/lib/systemd/system/redis-server.service",
        "etc/systemd/system/redis.service",
    );
    link("/dev/null", "etc/systemd/system/off.service");
    link("loop.service", "etc/systemd/system/pool.service");
    link("pool.service", "etc/systemd/system/loop.service");
    let place = |name: &str| {
        let mut unit = parse(name).unwrap();
        find(&root, &mut unit).map(|place| (unit.name, place.cgroup))
    };
    let is = |name: &str, own: &str, cgroup: &str| {
        assert_eq!(place(name).unwrap(), (own.into(), cgroup.into()));
    };
    is(
        "redis",
        "redis-server.service",
        "/system.slice/redis-server.service",
    );
    is("in", "in.service", "/db.slice/in.service");
    is(
        "app@7",
        "app@7.service",
        "/system.slice/system-app.slice/app@7.service",
    );
    is("app@", "app@.service", "/system.slice/system-app.slice");
    is("web-x.slice", "web-x.slice", "/web.slice/web-x.slice");
    for (bad, says) in [
        ("none", "no unit"),
        ("none@1", "no unit"),
        ("off", "masked"),
        ("odd", "only systemd"),
        ("loop", "circle"),
    ] {
        let error = place(bad).unwrap_err().to_string();
        assert!(error.contains(says), "{bad}: {error}");
    }
    fs::remove_dir_all(root).unwrap();
}
