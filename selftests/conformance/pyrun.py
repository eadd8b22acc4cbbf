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


# What is left out, by words in a test's name, and why; each such test is counted as skipped.
LEFT_OUT = {
    "about multiprocessing, 10 s each": ("new_process",),
    "sockets that are neither TCP nor anything TCP's tests depend on": (
        "UDPLITE", "CAN", "RDS", "VSOCK", "Bluetooth", "Qipcrtr", "HyperV", "ISOTP", "J1939"),
    # The signal is to end a send() on a pair of AF_UNIX. On a stalled machine it comes while Python makes the 16 MB to
    # send, and is noted; then nothing ends the send().
    "hang if a signal comes a moment early": ("sendall_interrupted",),
}
left_out = {}


def reason(test):
    name = type(test).__name__ + "." + test.id().rsplit(".", 1)[-1]
    return next((why for why, words in LEFT_OUT.items() if any(word in name for word in words)), None)


def tests(suite, result):
    for one in suite:
        if isinstance(one, unittest.TestSuite):
            yield from tests(one, result)
        elif why := reason(one):
            left_out[why] = left_out.get(why, 0) + 1
            result.note(one, "skip")
        else:
            yield one


support.use_resources = ["cpu", "walltime", "network"]
support.verbose = False
with open(sys.argv[1], "w") as f:
    loaded = unittest.defaultTestLoader.loadTestsFromNames(sys.argv[2:])
    result = Result(f)
    unittest.TestSuite(tests(loaded, result)).run(result)
    for why, number in left_out.items():
        print(f"left out: {number} tests: {why}", flush=True)
    print("end", "reached", sep="\t", file=f)
