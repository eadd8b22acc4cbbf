// SPDX-License-Identifier: GPL-2.0
//! Units as systemd or their files describe them.

use super::*;

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
