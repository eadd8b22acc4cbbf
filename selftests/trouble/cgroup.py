# SPDX-License-Identifier: GPL-2.0
# cgroup.py GROUP: a process in this control group makes connections to itself with large buffers until 300
# are there, and tells what became of them and what their buffers take. See cgroup.sh.
import json
import os
import socket
import struct
import subprocess
import sys
import time

PROTOCOL, SOL_SMC, RSMC_INFO = 256, 286, 100
REFUSED = 0x01010000
COUNT = 300


def buffers():
    """KiB of the buffers of all link groups, by the module's account."""
    groups = json.loads(links.communicate("now\n")[0])
    return sum(group["send_bytes"] + group["receive_bytes"] for group in groups) // 1024


def make():
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, PROTOCOL)
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        s.setsockopt(socket.SOL_SOCKET, option, 200000)
    s.settimeout(20)
    return s


def group(name):
    with open(os.path.join(sys.argv[1], name)) as f:
        return f.read()


def charged():
    """Bytes of buffers that are charged."""
    lines = group("memory.stat").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("sock "))


def enter(namespace):
    with open(f"/run/netns/{namespace}") as f:
        os.setns(f.fileno(), os.CLONE_NEWNET)


# Outside of the group, whose memory is used up when it is asked.
links = subprocess.Popen(["sh", "-c", "read when && exec rsmc link --json"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
with open(os.path.join(sys.argv[1], "cgroup.procs"), "w") as f:
    f.write(str(os.getpid()))
enter("a")
listener = make()
listener.bind(("10.77.0.1", 7777))
listener.listen(16)
enter("b")
pairs = []
for _ in range(COUNT):
    client = make()
    client.connect(("10.77.0.1", 7777))
    server, _ = listener.accept()
    server.settimeout(20)
    pairs.append((client, server))
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
print("taken_kib", buffers())
for name in ("memory.current", "memory.events"):
    print("now", name, group(name).replace("\n", " "))
end = time.monotonic() + 30
# Of two times 256 KiB at each end the receive buffer stays charged; a loaded machine takes its time.
while charged() // 1024 > smc * 2 * 256 * 5 / 4 and time.monotonic() < end:
    time.sleep(0.1)
print("charged_kib", charged() // 1024)
print("connections", len(pairs))
print("smc", smc)
print("fallback", fallback)
print("flowed", flowed)
