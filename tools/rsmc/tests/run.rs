// SPDX-License-Identifier: GPL-2.0
//! `rsmc run` and the preload library as a user meets them. Needs python3, and works on kernels
//! with and without SMC: what is expected of a socket follows from /proc/net/protocols.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The program, with the preload library built beside it by the same profile.
fn rsmc() -> Command {
    static BUILT: OnceLock<()> = OnceLock::new();
    let program = Path::new(env!("CARGO_BIN_EXE_rsmc"));
    BUILT.get_or_init(|| {
        let profile = program.parent().unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--offline", "-p", "rsmc-preload"]);
        cargo.arg("--target-dir").arg(profile.parent().unwrap());
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        let done = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status();
        assert!(
            done.unwrap().success(),
            "the preload library does not build"
        );
    });
    let mut command = Command::new(program);
    for name in ["FAMILY", "STRICT", "DEBUG", "SNDBUF", "RCVBUF"] {
        command.env_remove(format!("RSMC_{name}"));
    }
    command.env_remove("LD_PRELOAD");
    command
}

fn run(arguments: &[&str]) -> Output {
    rsmc().arg("run").args(arguments).output().unwrap()
}

fn python(options: &[&str], script: &str) -> Output {
    let mut arguments = options.to_vec();
    arguments.extend(["--", "python3", "-c", script]);
    run(&arguments)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn expect(output: &Output, code: i32, stderr: &str) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(stderr), "{said}");
}

fn kernel_has_smc() -> bool {
    fs::read_to_string("/proc/net/protocols")
        .unwrap()
        .contains("SMC")
}

fn scratch(name: &str, bytes: &[u8], mode: u32) -> PathBuf {
    let path = std::env::temp_dir().join(format!("rsmc-test-{}-{name}", std::process::id()));
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

#[test]
fn exit_codes_are_those_of_a_shell() {
    expect(&run(&["--", "true"]), 0, "");
    expect(&run(&["true"]), 0, "");
    expect(&run(&["--", "sh", "-c", "exit 41"]), 41, "");
    expect(
        &run(&["--", "no-such-command-here"]),
        127,
        "command not found",
    );
    expect(&run(&["--", "/no/such/file"]), 127, "/no/such/file");
    expect(&run(&["--", "/etc/passwd"]), 126, "not an executable file");
    expect(
        &run(&["--library", "/no/such.so", "--", "true"]),
        125,
        "/no/such.so",
    );
    expect(&run(&[]), 2, "Usage");
    expect(&run(&["--family", "ipx", "--", "true"]), 2, "ipx");
    expect(&run(&["--sndbuf", "0", "--", "true"]), 2, "not a size");
}

#[test]
fn the_library_joins_what_is_preloaded_already() {
    let show = ["run", "--", "sh", "-c", "echo \"$LD_PRELOAD\""];
    let alone = text(&rsmc().args(show).output().unwrap().stdout);
    let alone = alone.trim();
    assert!(
        alone.starts_with('/') && alone.ends_with("/librsmc_preload.so"),
        "{alone}"
    );
    assert!(Path::new(alone).is_file());

    // A library that surely exists: ours by another name.
    let other = scratch("other.so", &fs::read(alone).unwrap(), 0o755);
    let both = rsmc()
        .args(show)
        .env("LD_PRELOAD", &other)
        .output()
        .unwrap();
    assert_eq!(
        text(&both.stdout).trim(),
        format!("{}:{alone}", other.display())
    );
    let again = rsmc().args(show).env("LD_PRELOAD", alone).output().unwrap();
    assert_eq!(text(&again.stdout).trim(), alone);
    fs::remove_file(other).unwrap();
}

#[test]
fn options_become_the_environment() {
    let line = "echo $RSMC_FAMILY $RSMC_STRICT $RSMC_DEBUG $RSMC_SNDBUF $RSMC_RCVBUF";
    let all = [
        "--family", "smc", "--strict", "--debug", "--sndbuf", "64k", "--rcvbuf", "1m", "sh", "-c",
        line,
    ];
    assert_eq!(text(&run(&all).stdout), "smc 1 1 65536 1048576\n");
    assert_eq!(text(&run(&["sh", "-c", line]).stdout), "\n");
}

/// A static program: an ELF header and one segment, no interpreter.
fn static_program() -> Vec<u8> {
    let mut elf = vec![0u8; 120];
    elf[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    elf[16] = 2;
    let machine = fs::read("/proc/self/exe").unwrap();
    elf[18..20].copy_from_slice(&machine[18..20]);
    elf[20] = 1;
    elf[32] = 64;
    elf[52] = 64;
    elf[54] = 56;
    elf[56] = 1;
    elf[64] = 1;
    elf
}

#[test]
fn programs_out_of_reach_are_refused() {
    let elf = static_program();
    let program = scratch("static", &elf, 0o755);
    let name = program.to_str().unwrap();
    expect(
        &run(&["--", name]),
        126,
        "statically linked: the preload library cannot reach it",
    );

    let script = scratch("script", format!("#!{name} -x\n").as_bytes(), 0o755);
    expect(
        &run(&["--", script.to_str().unwrap()]),
        126,
        "statically linked",
    );

    let mut narrow = elf;
    narrow[4] = 1;
    let narrow = scratch("narrow", &narrow, 0o755);
    // A damaged header is not judged, a sound one of another class is refused; never a crash.
    let code = run(&["--", narrow.to_str().unwrap()]).status.code();
    assert!(matches!(code, Some(126 | 127)), "{code:?}");
    for file in [program, script, narrow] {
        fs::remove_file(file).unwrap();
    }
}

const EXCHANGE: &str = "
import socket
for family, host in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1')):
    try:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.bind((host, 0))
    except OSError:
        assert family == socket.AF_INET6
        continue
    listener.listen()
    client = socket.create_connection(listener.getsockname()[:2])
    server, peer = listener.accept()
    assert peer[:2] == client.getsockname()[:2]
    client.sendall(b'x' * 100000 + b'.')
    client.shutdown(socket.SHUT_WR)
    got = b''
    while True:
        part = server.recv(65536)
        if not part: break
        got += part
    assert got == b'x' * 100000 + b'.'
print('exchanged')
";

#[test]
fn sockets_work_whatever_the_kernel_has() {
    for family in ["inet", "smc"] {
        let output = python(&["--debug", "--family", family], EXCHANGE);
        let what = if kernel_has_smc() {
            "is SMC"
        } else {
            "is TCP, because SMC was refused"
        };
        expect(&output, 0, what);
        assert_eq!(text(&output.stdout), "exchanged\n");
    }
}

#[test]
fn strict_never_means_tcp() {
    let output = python(
        &["--strict"],
        "import socket; socket.socket(); print('made')",
    );
    if kernel_has_smc() {
        assert_eq!(text(&output.stdout), "made\n");
    } else {
        expect(&output, 1, "Protocol not supported");
    }
}

#[test]
fn other_sockets_and_errors_are_untouched() {
    let script = "
import socket, errno
a, b = socket.socketpair()
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
assert u.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL) == socket.IPPROTO_UDP
for arguments in ((99, 1, 0), (socket.AF_INET, 99, 0), (socket.AF_INET, socket.SOCK_STREAM, 17)):
    try:
        socket.socket(*arguments)
        raise SystemExit('made %r' % (arguments,))
    except OSError as error:
        assert error.errno in (errno.EAFNOSUPPORT, errno.EINVAL, errno.EPROTONOSUPPORT), error
";
    let output = python(&["--debug"], script);
    expect(&output, 0, "");
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn out_of_descriptors_is_said_and_not_retried() {
    let script = "
import resource, socket, errno, os
resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
made = []
try:
    while True: made.append(socket.socket())
except OSError as error:
    assert error.errno == errno.EMFILE, error
print('full')
";
    assert_eq!(text(&python(&[], script).stdout), "full\n");
}

#[test]
fn threads_forks_signals_and_a_wiped_environment() {
    let script = "
import os, signal, socket, threading
os.environ.clear()
hits = 0
def on_alarm(*_):
    global hits
    socket.socket().close()
    hits += 1
signal.signal(signal.SIGALRM, on_alarm)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
def work():
    for _ in range(500):
        socket.socket().close()
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
for _ in range(10):
    pid = os.fork()
    if pid == 0:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for _ in range(50): socket.socket().close()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
for thread in threads: thread.join()
signal.setitimer(signal.ITIMER_REAL, 0)
assert hits
os.write(1, b'survived\\n')
";
    let output = python(&["--debug"], script);
    assert_eq!(text(&output.stdout), "survived\n");
    let lines = text(&output.stderr)
        .matches("]: socket(AF_INET, SOCK_STREAM, 0) is ")
        .count();
    // Every call was seen, also after the environment was wiped: 8 * 500 + 10 * 50 and the alarms'.
    assert!(lines > 4500, "{lines}");
}

#[test]
fn buffer_sizes_arrive_where_there_is_smc() {
    let script = "
import socket
s = socket.socket()
print(s.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF), s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))
";
    let plain = text(&python(&[], script).stdout);
    let sized = text(&python(&["--sndbuf", "32k", "--rcvbuf", "16k"], script).stdout);
    if kernel_has_smc() {
        // The kernel doubles what it is asked for.
        assert_eq!(sized, "65536 32768\n");
    } else {
        assert_eq!(sized, plain);
    }
}

#[test]
fn a_kernel_without_smc_is_asked_once_in_a_while() {
    let script = "
import ctypes, socket, struct, time
# Whatever this kernel has, socket(.., 256) is refused as one without SMC does it: with EPROTONOSUPPORT, by seccomp.
load, equal, give = 0x20, 0x15, 0x06
number, protocol, sock_call, allow, errno93 = 0, 32, 41, 0x7fff0000, 0x00050000 | 93
program = b''.join(struct.pack('HBBI', *step) for step in (
    (load, 0, 0, number), (equal, 0, 3, sock_call), (load, 0, 0, protocol), (equal, 0, 1, 256),
    (give, 0, 0, errno93), (give, 0, 0, allow)))
steps = ctypes.create_string_buffer(program)
filter = ctypes.create_string_buffer(struct.pack('HxxxxxxP', 6, ctypes.addressof(steps)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, filter) == 0, ctypes.get_errno()
for _ in range(20): socket.socket().close()
time.sleep(11.5)
socket.socket().close()
";
    let said = text(&python(&["--debug"], script).stderr);
    assert_eq!(
        said.matches("SMC was refused with errno 93").count(),
        2,
        "{said}"
    );
    assert_eq!(
        said.matches("SMC was absent a moment ago").count(),
        19,
        "{said}"
    );
}

/// A seccomp filter as sandboxes have it (`RestrictAddressFamilies=` of systemd is one): the SMC
/// form of the call is refused with EPERM, and everything else is allowed.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_sandbox_that_refuses_smc_leaves_tcp() {
    let filter = "
import ctypes, struct, socket
def refuse(argument, value):
    code = ((0x20, 0, 0, 0), (0x15, 0, 3, 41), (0x20, 0, 0, 16 + 8 * argument), (0x15, 0, 1, value),
            (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7fff0000))
    code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *line) for line in code), 48)
    program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', 6, ctypes.addressof(code)), 16)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, program) == 0, ctypes.get_errno()
";
    for (family, rule) in [("inet", "refuse(2, 256)"), ("smc", "refuse(0, 43)")] {
        let script = format!("{filter}{rule}\nsocket.socket().listen()\nsocket.socket().close()\n");
        let output = python(&["--debug", "--family", family], &script);
        expect(&output, 0, "is TCP, because SMC was refused with errno 1\n");
        // A sandbox answers at once, so it is asked each time.
        assert_eq!(
            text(&output.stderr)
                .matches("refused with errno 1\n")
                .count(),
            2
        );
        let strict = python(&["--strict", "--family", family], &script);
        expect(&strict, 1, "Operation not permitted");
    }
}
