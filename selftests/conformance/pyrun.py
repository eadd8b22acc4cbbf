# SPDX-License-Identifier: GPL-2.0
"""pyrun.py OUT NAME...: runs unit tests by name and writes `id<TAB>outcome` lines to OUT."""
import sys
import time
import unittest

from test import support


class Result(unittest.TestResult):
    """Writes each outcome as it comes, so that a hang shows where."""

    def __init__(self, out):
        super().__init__()
        self.out = out

    def note(self, test, what):
        print(test.id(), what, sep="\t", file=self.out, flush=True)

    def startTest(self, test):
        super().startTest(test)
        self.started = time.monotonic()

    def stopTest(self, test):
        super().stopTest(test)
        took = time.monotonic() - self.started
        if took > 1:
            print(f"slow: {took:.1f} s {test.id()}", flush=True)

    def addSuccess(self, test):
        self.note(test, "ok")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        print(self.failures[-1][1])
        self.note(test, "fail")

    def addError(self, test, err):
        super().addError(test, err)
        print(self.errors[-1][1])
        self.note(test, "error")

    def addSkip(self, test, reason):
        self.note(test, "skip")

    def addExpectedFailure(self, test, err):
        self.note(test, "ok")

    def addSubTest(self, test, subtest, err):
        if err is not None:
            super().addSubTest(test, subtest, err)
            self.note(test, "fail")


# Sockets that are neither TCP nor anything TCP's tests depend on: the same with and without SMC, and slow to fail.
NEITHER = ("new_process",)  # about multiprocessing, 10 s each
FOREIGN = ("UDPLITE", "CAN", "RDS", "VSOCK", "Bluetooth", "Qipcrtr", "HyperV", "ISOTP", "J1939")


def tests(suite):
    for one in suite:
        if isinstance(one, unittest.TestSuite):
            yield from tests(one)
        elif not any(word in type(one).__name__ for word in FOREIGN):
            if not any(word in one.id() for word in NEITHER):
                yield one


support.use_resources = ["cpu", "walltime", "network"]
support.verbose = False
with open(sys.argv[1], "w") as f:
    loaded = unittest.defaultTestLoader.loadTestsFromNames(sys.argv[2:])
    unittest.TestSuite(tests(loaded)).run(Result(f))
    print("end", "reached", sep="\t", file=f)
