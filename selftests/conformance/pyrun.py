# SPDX-License-Identifier: GPL-2.0
"""pyrun.py OUT NAME...: runs unit tests by name and writes `id<TAB>outcome` lines to OUT."""
import sys
import unittest

from test import support


class Result(unittest.TestResult):
    """Writes each outcome as it comes, so that a hang shows where."""

    def __init__(self, out):
        super().__init__()
        self.out = out

    def note(self, test, what):
        print(test.id(), what, sep="\t", file=self.out, flush=True)

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


support.use_resources = ["cpu", "walltime"]
support.verbose = False
with open(sys.argv[1], "w") as f:
    names = [n for n in sys.argv[2:]]
    unittest.defaultTestLoader.loadTestsFromNames(names).run(Result(f))
    print("end", "reached", sep="\t", file=f)
