# SPDX-License-Identifier: GPL-2.0
"""The points of ethernet.sh. All are judged by what arrives and by what the ports have counted, none by the clock: where
something must not happen, all that could bring it about has happened."""

import contextlib
import ctypes
import hashlib
import os
import re
import socket
import subprocess
import sys
import threading
import time
import traceback

PARAMETERS = "/sys/module/card/parameters/"
SLOW = int(os.environ.get("RSMC_SLOW", "1"))
# How long anything may take that has to come; nothing is learned from how long it took.
PATIENCE = 20 * SLOW
# Of frames that nobody else sends.
TYPE = 0x88B5
FOREVER = 2000000000
# IPv4 and IPv6 addresses of the ports.
ADDRESSES = {"a": ("10.78.0.1", "fd78::1"), "b": ("10.78.0.2", "fd78::2")}
MIB = 1 << 20
# Of data, in a direction; less where every byte takes long.
VOLUME = 2 * MIB // int(os.environ.get("RSMC_LESS", "1"))

libc = ctypes.CDLL(None, use_errno=True)


def enter(name):
    with open("/run/netns/" + name) as f:
        if libc.setns(f.fileno(), 0):
            raise OSError(ctypes.get_errno(), "setns")


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


def within(ns, *words):
    return run("ip", "netns", "exec", ns, *words)


def ethtool(side, *words):
    within(side, "ethtool", words[0], "p" + side, *words[1:])


def trouble(name, word, number):
    with open(PARAMETERS + "trouble", "w") as f:
        f.write(f"{name} {word} {number}")


def stats():
    """What each port has counted."""
    found = {}
    with open(PARAMETERS + "stats") as f:
        for line in f:
            name, *rest = line.split()
            found[name] = dict(zip(rest[::2], map(int, rest[1::2])))
    return found


def wait_until(what, condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"{what}: never; {stats()}"
        time.sleep(0.01)


def settled():
    """The counts once nothing moves any more."""
    last = None
    while True:
        now = stats()
        if now == last:
            return now
        last = now
        time.sleep(0.05)


def more(before, after, port, *names):
    counts = [after[port][name] - before[port][name] for name in names]
    return counts[0] if len(names) == 1 else counts


@contextlib.contextmanager
def moderated(side, way, usecs, frames, after=("0", "0")):
    """The interrupts of a port wait."""
    ethtool(side, "-C", way + "-usecs", str(usecs), way + "-frames", str(frames))
    try:
        yield
    finally:
        ethtool(side, "-C", way + "-usecs", after[0], way + "-frames", after[1])


@contextlib.contextmanager
def troubled(name, word, number):
    """Something is wrong with a port."""
    trouble(name, word, number)
    try:
        yield
    finally:
        trouble(name, word, 0)


class Raw:
    """Frames of a kind of their own, from a to b, without IP beside them, and all in one queue."""

    def __init__(self):
        self.processors = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {0})
        self.ends = {}
        for ns in "ab":
            enter(ns)
            s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(TYPE))
            s.bind(("p" + ns, TYPE))
            s.settimeout(PATIENCE)
            self.ends[ns] = s
        self.mac = {ns: s.getsockname()[4] for ns, s in self.ends.items()}
        self.number = 0

    def send(self, length=100):
        self.number += 1
        head = self.mac["b"] + self.mac["a"] + TYPE.to_bytes(2, "big") + self.number.to_bytes(4, "big")
        self.ends["a"].send(head.ljust(length, b"."))
        return self.number

    def receive(self):
        return int.from_bytes(self.ends["b"].recv(10000)[14:18], "big")

    def nothing(self):
        self.ends["b"].setblocking(False)
        try:
            self.ends["b"].recv(10000)
            return False
        except BlockingIOError:
            return True
        finally:
            self.ends["b"].settimeout(PATIENCE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.sched_setaffinity(0, self.processors)
        for s in self.ends.values():
            s.close()


# --- TCP ------------------------------------------------------------------


def listener(v6):
    enter("b")
    s = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_STREAM)
    s.bind((ADDRESSES["b"][v6], 0))
    s.listen(1)
    return s


def pair(v6=False):
    with listener(v6) as heard:
        enter("a")
        client = socket.create_connection(heard.getsockname()[:2], PATIENCE)
        server, _ = heard.accept()
    for s in (client, server):
        s.settimeout(PATIENCE)
    return client, server


def exchange(sender, receiver, data):
    """Whether bytes arrive as they were sent."""
    writer = threading.Thread(target=sender.sendall, args=(data,))
    writer.start()
    left, digest = len(data), hashlib.sha256()
    while left:
        got = receiver.recv(min(left, MIB))
        assert got, "the connection has ended"
        digest.update(got)
        left -= len(got)
    writer.join()
    return digest.digest() == hashlib.sha256(data).digest()


def carry(size):
    """Bytes each way, by IPv4 and IPv6."""
    for v6 in (False, True):
        client, server = pair(v6)
        with client, server:
            for ends in ((client, server), (server, client)):
                assert exchange(*ends, os.urandom(size)), f"other bytes (IPv6: {v6})"


def bad_checksums():
    found = 0
    for ns in "ab":
        with subprocess.Popen(["ip", "netns", "exec", ns, "cat", "/proc/net/snmp"], stdout=subprocess.PIPE, text=True) as p:
            names, values = [line.split() for line in p.stdout if line.startswith("Tcp:")]
        found += int(values[names.index("InCsumErrors")])
    return found


def offloads(**words):
    """Sets all offloads at both ends, on but for those that are named."""
    every = ("rx", "tx", "sg", "tso", "gro", "rx-gro-hw", "rxhash")
    for side in "ab":
        ethtool(side, "-K", *(part for word in every for part in (word, words.get(word.replace("-", "_"), "on"))))


# --- points ---------------------------------------------------------------


def ports(up):
    for side in "ab":
        if up:
            # IPv6 says things by itself: it comes later.
            within(side, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1")
            run("ip", "-n", side, "link", "add", "p" + side, "type", "card")
            within(side, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=0")
            run("ip", "-n", side, "link", "set", "p" + side, "up")
        else:
            run("ip", "-n", side, "link", "delete", "p" + side)


def addresses():
    for side in "ab":
        within(side, "sysctl", "-qw", f"net.ipv6.conf.p{side}.disable_ipv6=0")
        run("ip", "-n", side, "addr", "add", ADDRESSES[side][0] + "/24", "dev", "p" + side)
        run("ip", "-n", side, "addr", "add", ADDRESSES[side][1] + "/64", "dev", "p" + side, "nodad")


def frames():
    """A frame arrives, with one interrupt at each end; nothing else does anything."""
    with Raw() as raw:
        before = settled()
        sent = raw.send()
        assert raw.receive() == sent
        wait_until("sent", lambda: more(before, stats(), "pa", "interrupts") == 1)
        after = settled()
        assert more(before, after, "pa", "doorbells", "frames", "packets", "completions") == [1, 1, 1, 1], after
        assert more(before, after, "pb", "arrived", "interrupts", "frames") == [1, 1, 0], after


def moderated_by_number():
    """Seven frames raise no interrupt, the eighth raises one for all of them."""
    with Raw() as raw, moderated("b", "rx", FOREVER, 8):
        before = settled()
        for _ in range(7):
            raw.send()
        after = settled()
        assert more(before, after, "pb", "arrived", "interrupts") == [7, 0], after
        assert raw.nothing()
        raw.send()
        for n in range(8):
            assert raw.receive() == n + 1
        after = settled()
        assert more(before, after, "pb", "arrived", "interrupts", "delayed") == [8, 1, 0], after


def moderated_by_time():
    """One frame of very many that an interrupt waits for: the time tells of it."""
    with Raw() as raw, moderated("b", "rx", 1000, 10000):
        before = settled()
        sent = raw.send()
        assert raw.receive() == sent
        after = settled()
        assert more(before, after, "pb", "arrived", "interrupts", "delayed") == [1, 1, 1], after


def moderated_sending():
    """What was sent raises an interrupt for four frames together."""
    with Raw() as raw, moderated("a", "tx", FOREVER, 4, ("256", "32")):
        before = settled()
        for _ in range(3):
            raw.send()
        after = settled()
        assert more(before, after, "pa", "completions", "interrupts") == [3, 0], after
        raw.send()
        wait_until("sent", lambda: more(before, stats(), "pa", "interrupts") >= 1)
        after = settled()
        assert more(before, after, "pa", "completions", "interrupts", "delayed") == [4, 1, 0], after


def not_moderated():
    """Frames that come one by one raise an interrupt each."""
    with Raw() as raw:
        first = before = settled()
        for _ in range(8):
            sent = raw.send()
            assert raw.receive() == sent
            # The driver has asked for the next one.
            wait_until("armed", lambda: more(before, stats(), "pb", "arms") >= 2)
            before = settled()
        assert more(first, before, "pb", "arrived", "interrupts", "delayed") == [8, 8, 0], before


def late():
    """With a latency frames are sent by a timer of the hardware, all the same."""
    with Raw() as raw:
        before = settled()
        with troubled("pa", "latency", 1000000):
            sent = [raw.send() for _ in range(3)]
            assert [raw.receive() for _ in sent] == sent
        after = settled()
        # As many timers as there were waits for one.
        assert more(before, after, "pa", "late") >= 1, after
        sent = raw.send()
        assert raw.receive() == sent
        assert more(after, settled(), "pa", "late") == 0


def small_mtu():
    """A wire that loses large packets loses these and no others."""
    with Raw() as raw:
        before = settled()
        with troubled("pb", "mtu", 1000):
            raw.send(1001)
            kept = raw.send(1000)
            assert raw.receive() == kept
        kept = raw.send(1001)
        assert raw.receive() == kept
        assert more(before, settled(), "pa", "lost") == 1


def wire_down():
    """All frames are lost while the wire is down, none afterwards. The sender hears nothing of it."""
    with Raw() as raw:
        before = settled()
        with troubled("pa", "down", FOREVER):
            for _ in range(5):
                raw.send()
            wait_until("sent", lambda: more(before, stats(), "pa", "frames") == 5)
            after = settled()
            assert more(before, after, "pa", "frames", "lost", "completions") == [5, 5, 5], after
            assert raw.nothing()
        sent = [raw.send() for _ in range(5)]
        assert [raw.receive() for _ in sent] == sent
        assert more(after, settled(), "pa", "lost") == 0


def whole(changes, judge):
    """Bytes arrive whole, and went as they should."""
    try:
        offloads(**changes)
        before = settled()
        bad = bad_checksums()
        carry(VOLUME)
        after = settled()
    finally:
        offloads()
    assert bad_checksums() == bad, "wrong checksums"
    for port, other in (("pa", "pb"), ("pb", "pa")):
        frames, packets, lost, refused = more(before, after, port, "frames", "packets", "lost", "refused")
        arrived, dropped = more(before, after, other, "arrived", "no_buffer")
        said = f"{port}: {frames} frames of {packets} packets, {arrived} arrived, {dropped} without buffers, {refused} refused"
        print("#", said)
        assert lost == 0 and refused == 0, said
        judge(said, frames, packets, arrived + dropped)


def merged(said, frames, packets, arrived):
    """Frames of many packets cross as they are."""
    assert frames == arrived and packets > 2 * frames, said


def cut(said, frames, packets, arrived):
    """The hardware cuts frames."""
    assert packets > 2 * frames and arrived == packets, said


def single(said, frames, packets, arrived):
    """No frame is longer than a packet, which the hardware would have refused."""
    assert frames == packets == arrived and frames > 2 * VOLUME // 1500, said


WHOLE = {
    "all": ({}, merged),
    "tso_off": ({"tso": "off"}, single),
    "tx_checksums_off": ({"tx": "off", "tso": "off"}, single),
    "rx_checksums_off": ({"rx": "off", "rx_gro_hw": "off"}, cut),
    "merging_off": ({"rx_gro_hw": "off"}, cut),
    "gro_off": ({"gro": "off", "rx_gro_hw": "off"}, cut),
    "scattering_off": ({"sg": "off", "tso": "off"}, single),
    "hashes_off": ({"rxhash": "off"}, merged),
    "all_off": (dict.fromkeys(("rx", "tx", "sg", "tso", "gro", "rx_gro_hw", "rxhash"), "off"), single),
}


def tcp_wire_down():
    """A connection goes on when the wire is up again."""
    client, server = pair()
    with client, server:
        assert exchange(client, server, os.urandom(VOLUME // 2))
        data = os.urandom(VOLUME // 2)
        done = []
        reader = threading.Thread(target=lambda: done.append(exchange(client, server, data)))
        with troubled("pb", "down", FOREVER):
            before = settled()
            reader.start()
            wait_until("lost", lambda: more(before, stats(), "pa", "lost") >= 2)
            assert not done
        reader.join()
        assert done == [True]


def large_mtu():
    """Frames of 9000 bytes, where both ports take them."""
    for side in "ab":
        run("ip", "-n", side, "link", "set", "p" + side, "mtu", "9000")
    with Raw() as raw:
        sent = raw.send(9014)
        assert raw.receive() == sent
    carry(VOLUME)
    for side in "ab":
        run("ip", "-n", side, "link", "set", "p" + side, "mtu", "1500")


def down_and_up():
    """A port that goes down while a connection sends, and comes back."""
    client, server = pair()
    with client, server:
        client.setblocking(False)
        try:
            while True:
                client.send(bytes(MIB))
        except BlockingIOError:
            pass
        for side in "ba":
            run("ip", "-n", side, "link", "set", "p" + side, "down")
            run("ip", "-n", side, "link", "set", "p" + side, "up")
    # Which takes IPv6 addresses away.
    for side in "ab":
        run("ip", "-n", side, "addr", "replace", ADDRESSES[side][1] + "/64", "dev", "p" + side, "nodad")
    carry(VOLUME // 2)


def unload():
    """The module goes while connections send."""
    pairs = [pair() for _ in range(4)]

    def send(s):
        try:
            while True:
                s.sendall(bytes(65536))
        except OSError:
            pass

    def receive(s):
        try:
            while s.recv(MIB):
                pass
        except OSError:
            pass

    before = stats()
    threads = [threading.Thread(target=send, args=(c,)) for c, _ in pairs]
    threads += [threading.Thread(target=receive, args=(s,)) for _, s in pairs]
    for thread in threads:
        thread.start()
    wait_until("traffic", lambda: more(before, stats(), "pa", "frames") > 100)
    run("rmmod", "card")
    assert not os.path.exists("/sys/module/card")
    for ends in pairs:
        for s in ends:
            s.shutdown(socket.SHUT_RDWR)
    for thread in threads:
        thread.join()
    for ends in pairs:
        for s in ends:
            s.close()


def again():
    """It can be loaded again, and carries."""
    run("insmod", "/rsmc/kmod/card.ko", "engine=interrupt")
    ports(True)
    addresses()
    carry(VOLUME // 2)
    ports(False)
    run("rmmod", "card")


def main():
    points = [
        ("frames", frames),
        ("moderated.number", moderated_by_number),
        ("moderated.time", moderated_by_time),
        ("moderated.sending", moderated_sending),
        ("moderated.not", not_moderated),
        ("wire.latency", late),
        ("wire.mtu", small_mtu),
        ("wire.down", wire_down),
        ("addresses", addresses),
        *[("whole." + name, lambda how=how: whole(*how)) for name, how in WHOLE.items()],
        ("wire.down.tcp", tcp_wire_down),
        ("large_mtu", large_mtu),
        ("port.down", down_and_up),
        ("unload", unload),
        ("again", again),
    ]
    # Those that others build on are always there.
    wanted = tuple(sys.argv[1:]) + ("addresses",) if sys.argv[1:] else ("",)
    points = [(name, point) for name, point in points if name.startswith(wanted)]
    print(f"KTAP version 1\n1..{len(points)}", flush=True)
    failed = 0
    ports(True)
    for number, (name, point) in enumerate(points, 1):
        try:
            point()
            said = "ok"
        except Exception:
            failed += 1
            said = "not ok"
            print(re.sub("(?m)^", "# ", traceback.format_exc().strip()))
        print(f"{said} {number} - {name}", flush=True)
    sys.exit(failed > 0)


main()
