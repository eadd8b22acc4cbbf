# SPDX-License-Identifier: GPL-2.0
"""reason.py ADDRESS: connects from namespace a to a server in the namespace of ADDRESS, and prints why the
connection is not SMC-R, as a number; 0x0 if it is."""

import ctypes
import os
import socket
import struct
import sys


def smc():
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)


def enter(name):
    with open("/run/netns/" + name) as f:
        if ctypes.CDLL(None, use_errno=True).setns(f.fileno(), 0):
            raise OSError(ctypes.get_errno(), "setns")


enter("b")
listener = smc()
listener.bind((sys.argv[1], 0))
listener.listen(1)
enter("a")
client = smc()
client.connect(listener.getsockname())
server, _ = listener.accept()
client.sendall(b"x")
assert server.recv(1) == b"x"
mode, reason = struct.unpack("4I", client.getsockopt(286, 100, 16))[:2]
assert (mode == 0) == (reason == 0), (mode, reason)
print(hex(reason))
