# SPDX-License-Identifier: GPL-2.0
# spare.py COUNT: makes COUNT connections between the namespaces a and b and does with them what
# its standard input says, a word a line, each answered by a line: `talk` sends 4 bytes each way on each,
# `bulk` 40,000, `busy` some on one until the next word, `quiet` none, `gaps` small messages with pauses in which a send ring may just be given back,
# `close` closes all, `open` makes others.
import os
import random
import select
import socket
import sys
import time

PROTOCOL = 256


def enter(namespace):
    with open(f"/run/netns/{namespace}") as f:
        os.setns(f.fileno(), os.CLONE_NEWNET)


def make():
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, PROTOCOL)
    s.settimeout(60)
    return s


def exactly(s, n):
    got = b""
    while len(got) < n:
        part = s.recv(n - len(got))
        assert part, "end"
        got += part
    return got


def exchange(pair, data):
    for one, other in (pair, pair[::-1]):
        one.sendall(data)
        assert exactly(other, len(data)) == data, "wrong bytes"


def gaps(pairs):
    chance = random.Random(1)
    due = [(time.monotonic() + chance.random(), n) for n in range(len(pairs))]
    end = time.monotonic() + 8
    count = 0
    while (now := time.monotonic()) < end:
        due.sort()
        at, n = due[0]
        if at > now:
            time.sleep(at - now)
        exchange(pairs[n], chance.randbytes(chance.randint(1, 300)))
        count += 1
        # A ring goes between half a second and a whole one after its last byte.
        due[0] = (time.monotonic() + 0.4 + chance.random() * 0.7, n)
    return count


count = int(sys.argv[1])
enter("a")
listener = make()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("10.77.0.1", 7300))
listener.listen(16)
enter("b")


def open_all():
    pairs = []
    for _ in range(count):
        client = make()
        client.connect(("10.77.0.1", 7300))
        server, _ = listener.accept()
        server.settimeout(60)
        pairs.append((client, server))
    return pairs


pairs = open_all()
print("open", flush=True)
for word in sys.stdin:
    word = word.strip()
    if word == "open":
        pairs = open_all()
    elif word == "close":
        for pair in pairs:
            for s in pair:
                s.close()
        pairs = []
    elif word == "busy":
        # Until the next word a ring is in use at each end.
        print(word, flush=True)
        while not select.select([sys.stdin], [], [], 0.1)[0]:
            exchange(pairs[0], b"busy")
        continue
    elif word == "quiet":
        pass
    elif word == "gaps":
        print("#", gaps(pairs), "messages", file=sys.stderr)
    else:
        for pair in pairs:
            exchange(pair, random.randbytes(4 if word == "talk" else 40000))
    print(word, flush=True)
