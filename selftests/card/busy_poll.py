# SPDX-License-Identifier: GPL-2.0
"""busy_poll.py MICROSECONDS HOW: a server in this namespace whose reads poll the card for that long before they sleep,
and a client in namespace a, each on a processor of its own. HOW is `read` (recv() of a blocking socket) or `epoll`.

Prints how many completions were found by polling, of the messages that were sent."""

import fcntl
import os
import select
import socket
import struct
import sys
import time

SO_BUSY_POLL = 46
SO_INCOMING_NAPI_ID = 56
EPIOCSPARAMS = 0x40088A01
MESSAGES = 200


def polled():
    """BusyPollRxPackets of the initial namespace, to which the contexts of cards belong."""
    with open("/proc/1/net/netstat") as f:
        names, values = [line.split() for line in f if line.startswith("TcpExt:")]
    return int(values[names.index("BusyPollRxPackets")])


def smc():
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)


def enter(name):
    import ctypes

    with open("/run/netns/" + name) as f:
        if ctypes.CDLL(None, use_errno=True).setns(f.fileno(), 0):
            raise OSError(ctypes.get_errno(), "setns")


def client(address):
    os.sched_setaffinity(0, {0})
    enter("a")
    s = smc()
    s.connect(address)
    for _ in range(MESSAGES):
        # The server polls by now.
        time.sleep(0.002)
        s.sendall(b"x" * 64)
        answer = s.recv(64)
        assert answer == b"y", answer
    # The server looks at its socket before this ends.
    time.sleep(0.1)
    s.close()


def main():
    address, micros, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    listener = smc()
    listener.bind((address, 0))
    listener.listen(1)
    child = os.fork()
    if child == 0:
        client(listener.getsockname())
        os._exit(0)
    os.sched_setaffinity(0, {1})
    s, _ = listener.accept()
    told = struct.unpack("4I", s.getsockopt(286, 100, 16))
    assert told[0] == 0, "not SMC"
    s.setsockopt(socket.SOL_SOCKET, SO_BUSY_POLL, micros)
    epoll = select.epoll()
    if how == "epoll":
        # struct epoll_params: microseconds, budget, whether polling is preferred.
        fcntl.ioctl(epoll.fileno(), EPIOCSPARAMS, struct.pack("IHBx", micros, 8, 0))
        epoll.register(s.fileno(), select.EPOLLIN)
    before = polled()
    for _ in range(MESSAGES):
        if how == "epoll":
            assert epoll.poll(20), "no event"
        data = s.recv(64)
        assert data == b"x" * 64, data
        s.sendall(b"y")
    # Before the end, which TCP tells.
    assert s.getsockopt(socket.SOL_SOCKET, SO_INCOMING_NAPI_ID) > 0, "no NAPI context"
    assert s.recv(1) == b"", "no end"
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    print(polled() - before)


main()
