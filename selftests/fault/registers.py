# SPDX-License-Identifier: GPL-2.0
"""registers.py ADDRESS WHAT: in the namespace of ADDRESS, a server; its clients are in namespace a, whose
device tells for a while of no request that has ended. So the memory that a second connection registers
meanwhile is not ready, and the link is not idle.

WHAT is `goes_on`: messages of the first connection arrive all the same; `waits`: they do not. Afterwards
both connections carry what they should."""

import fcntl
import os
import socket
import struct
import sys
import termios
import threading
import time

PARAMETERS = "/sys/module/verb_fault/parameters/"
# All of it in less time than the other end of the second connection has patience, and with one slot of the
# queue pair for each.
MESSAGES = 12
PAUSE = 0.2
# The second connection has come so far when these are sent.
LAST = 3


def arm(text):
    with open(PARAMETERS + "arm", "w") as f:
        f.write(text)


def registrations():
    with open(PARAMETERS + "regs") as f:
        return int(f.read())


def smc(size):
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
    return s


def unsent(s):
    """Bytes that are not known to have arrived (SIOCOUTQ)."""
    count = bytearray(4)
    fcntl.ioctl(s, termios.TIOCOUTQ, count)
    return struct.unpack("i", count)[0]


def is_smc(s):
    told = struct.unpack("4I", s.getsockopt(286, 100, 16))
    if told[0] != 0:
        print("# not SMC:", *map(hex, told), file=sys.stderr)
    return told[0] == 0


def enter(name):
    import ctypes

    with open("/run/netns/" + name) as f:
        if ctypes.CDLL(None, use_errno=True).setns(f.fileno(), 0):
            raise OSError(ctypes.get_errno(), "setns")


def exchange(one, other, size):
    """Bytes that one sends and the other receives."""
    data = os.urandom(size)
    sender = threading.Thread(target=one.sendall, args=(data,))
    sender.start()
    got = b""
    while len(got) < size:
        part = other.recv(size - len(got))
        assert part, "the end"
        got += part
    sender.join()
    assert got == data, "other bytes"


def main():
    address, what = sys.argv[1], sys.argv[2]
    listener = smc(16384)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, 0))
    listener.listen(8)
    port = listener.getsockname()[1]
    # The listener stays where it is.
    enter("a")
    first = smc(16384)
    first.connect((address, port))
    there, _ = listener.accept()
    assert is_smc(first) and is_smc(there), "fell back"
    exchange(first, there, 100000)
    exchange(there, first, 100000)

    # Of another size, so from memory of its own.
    second = smc(1 << 20)
    connecting = threading.Thread(target=second.connect, args=((address, port),))
    early = late = 0
    before = registrations()
    # What was sent until now has ended: who asks has the device tell of it, and requests end in order.
    first.send(b"0")
    assert there.recv(1) == b"0"
    for _ in range(100):
        if not unsent(first):
            break
        time.sleep(0.01)
    else:
        raise AssertionError("its end did not come")
    arm("hold rxe_a 1 1000000000")
    try:
        first.send(b"0")
        assert there.recv(1) == b"0"
        connecting.start()
        for number in range(MESSAGES):
            first.send(bytes([number]))
            time.sleep(PAUSE)
            there.setblocking(False)
            try:
                got = len(there.recv(64))
            except BlockingIOError:
                got = 0
            there.setblocking(True)
            if number < MESSAGES - LAST:
                early += got
            else:
                late += got
        undecided = connecting.is_alive()
        posted = registrations() - before
    finally:
        arm("off")
    print("# arrived:", early, "and", late, "of", MESSAGES, file=sys.stderr)
    print("# registrations posted meanwhile:", posted, file=sys.stderr)
    assert undecided, "there was nothing to register"
    if what == "goes_on":
        assert late > 0 and posted > 0, "the link stood still"
    else:
        assert late == 0, "the link did not wait"
    for _ in range(MESSAGES - early - late):
        assert there.recv(1)
    connecting.join()
    assert is_smc(second), "fell back"
    with_second, _ = listener.accept()
    for _ in range(3):
        exchange(second, with_second, 3000000)
        exchange(with_second, second, 3000000)
        exchange(first, there, 300000)
    return 0


sys.exit(main())
