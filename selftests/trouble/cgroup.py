# SPDX-License-Identifier: GPL-2.0
# cgroup.py GROUP: a process in this control group makes connections to itself with large buffers until 300
# are there, and tells what became of them and of the host's memory. See cgroup.sh.
import mmap
import os
import select
import socket
import struct
import sys
import threading
import time

PROTOCOL, SOL_SMC, RSMC_INFO = 256, 286, 100
SO_SNDBUFFORCE = 32
REFUSED = 0x01010000
COUNT = 300


def available():
    with open("/proc/meminfo") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("MemAvailable:"))


def make(send=200000):
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, PROTOCOL)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 200000)
    s.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, send)
    s.settimeout(20)
    return s


def group(name):
    with open(os.path.join(sys.argv[1], name)) as f:
        return f.read()


def charged():
    """Bytes of buffers that are charged."""
    lines = group("memory.stat").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("sock "))


def fill(left):
    """Memory of this process, so much that `left` bytes of the group's remain."""
    most = int(group("memory.max"))
    parts = []
    for size in (1 << 20, 1 << 16):
        while int(group("memory.current")) + size + left < most:
            part = mmap.mmap(-1, size)
            for at in range(0, size, 4096):
                part[at] = 1
            parts.append(part)
    return parts


def is_refused(s):
    """Whether a send that must not wait finds no memory, after which poll() does not say that it would."""
    s.setblocking(False)
    try:
        s.send(b"late")
        return False
    except BlockingIOError:
        poll = select.poll()
        poll.register(s, select.POLLOUT)
        return not poll.poll(0)
    finally:
        s.settimeout(20)


def short_of_memory(pairs):
    """Silent connections send again while the group has no memory for their rings of 1 MiB: 600 KiB, and
    256 that may be charged in advance."""
    parts = fill(600 << 10)
    waiting = list(pairs)
    print("refused", sum(is_refused(client) for client, _ in waiting))
    # One waits in send(), the other, with a limit, in poll().
    waiting[0][0].settimeout(None)
    threads = [threading.Thread(target=c.sendall, args=(b"last",), daemon=True) for c, _ in waiting]
    for thread in threads:
        thread.start()
    time.sleep(1.5)
    print("waited", sum(thread.is_alive() for thread in threads))
    parts.clear()
    for thread in threads:
        thread.join(10)
    print("went", sum(server.recv(4) == b"last" for _, server in waiting))


def enter(namespace):
    with open(f"/run/netns/{namespace}") as f:
        os.setns(f.fileno(), os.CLONE_NEWNET)


with open(os.path.join(sys.argv[1], "cgroup.procs"), "w") as f:
    f.write(str(os.getpid()))
enter("a")
listener = make()
listener.bind(("10.77.0.1", 7777))
listener.listen(16)
enter("b")


def connect(**how):
    client = make(**how)
    client.connect(("10.77.0.1", 7777))
    server, _ = listener.accept()
    server.settimeout(20)
    return client, server


large = [connect(send=1 << 20) for _ in range(2)]
for client, server in large:
    client.sendall(b"ping")
    assert server.recv(4) == b"ping"
before = available()
pairs = [connect() for _ in range(COUNT)]
smc = fallback = flowed = 0
for client, server in pairs:
    mode, reason, diagnosis, _ = struct.unpack("4I", client.getsockopt(SOL_SMC, RSMC_INFO, 16))
    if mode == 0:
        smc += 1
    elif REFUSED in (reason, diagnosis):
        fallback += 1
    else:
        print(f"mode {mode} reason {reason:#x} peer {diagnosis:#x}")
    client.sendall(b"ping")
    got = server.recv(4)
    server.sendall(got[::-1])
    flowed += client.recv(4) == b"gnip"
print("taken_kib", before - available())
for name in ("memory.current", "memory.events"):
    print("now", name, group(name).replace("\n", " "))
busy = charged()
time.sleep(2.5)
print("uncharged_kib", (busy - charged()) // 1024)
short_of_memory(large)
print("connections", len(pairs))
print("smc", smc)
print("fallback", fallback)
print("flowed", flowed)
