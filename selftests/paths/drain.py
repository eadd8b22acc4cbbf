# SPDX-License-Identifier: GPL-2.0
"""drain.py ADDRESS WHAT FROM...: in the namespace of ADDRESS, a server that closes one connection after the
other with data for clients in namespace a, which have the addresses FROM and take hardly any.

WHAT is `ended`: the first is aborted although its client takes a byte every 0.3 s; or a letter for each
connection, `x` if it is aborted after the last close, `-` if not."""

import errno
import os
import socket
import struct
import sys
import time

SMALL = 16384


def smc():
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
    # Rings of 16 KiB at both ends.
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
    return s


def is_smc(s):
    return struct.unpack("4I", s.getsockopt(286, 100, 16))[0] == 0


def enter(name):
    import ctypes

    with open("/run/netns/" + name) as f:
        if ctypes.CDLL(None, use_errno=True).setns(f.fileno(), 0):
            raise OSError(ctypes.get_errno(), "setns")


def aborted(s):
    """Takes a byte; whether the connection has been aborted."""
    try:
        data = s.recv(1, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError as e:
        assert e.errno in (errno.ECONNRESET, errno.ECONNABORTED), e
        return True
    assert data, "the end, although there is more"
    return False


def main():
    address, what, sources = sys.argv[1], sys.argv[2], sys.argv[3:]
    listener = smc()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, 0))
    listener.listen(8)
    port = listener.getsockname()[1]
    # The listener stays where it is.
    enter("a")
    clients = []
    for source in sources:
        client = smc()
        client.bind((source, 0))
        client.connect((address, port))
        assert is_smc(client), "fell back"
        clients.append(client)
        server, _ = listener.accept()
        assert is_smc(server), "fell back"
        # Until both rings are full: nothing more goes in for a while.
        server.setblocking(False)
        end = time.monotonic() + 0.4
        while time.monotonic() < end:
            try:
                server.send(b"x" * 4096)
                end = time.monotonic() + 0.4
            except BlockingIOError:
                time.sleep(0.02)
        server.close()
        time.sleep(0.1)

    if what == "ended":
        end = time.monotonic() + 30 * int(os.environ.get("RSMC_SLOW", "1"))
        poll = lambda s: s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        began = time.monotonic()
        while time.monotonic() < end:
            if poll(clients[0]) in (errno.ECONNRESET, errno.ECONNABORTED):
                assert time.monotonic() - began > 3, "too early"
                return 0
            if aborted(clients[0]):
                return 0
            time.sleep(0.3)
        print("still there", file=sys.stderr)
        return 1
    # An error is told once.
    found = ["-"] * len(clients)

    def look():
        for n, s in enumerate(clients):
            if s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                found[n] = "x"
        return "".join(found)

    end = time.monotonic() + 20 * int(os.environ.get("RSMC_SLOW", "1"))
    while look() != what and time.monotonic() < end:
        time.sleep(0.1)
    # None goes beyond that.
    time.sleep(0.5)
    if look() != what:
        print("aborted:", "".join(found), file=sys.stderr)
        return 1
    return 0


sys.exit(main())
