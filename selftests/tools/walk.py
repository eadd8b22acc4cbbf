#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# A stranger's walk: runs the commands of a page of Documentation, in order and as printed there, in two guests.
# Usage (both guests): walk.py PAGE
#
# A block of the page is run where its fence says: "```sh server", "```sh client" or "```sh both"; "```sh untested: WHY" is a
# skip with that reason, and other languages are no commands. A shell of each guest keeps what a reader's shell would, from the
# first block to the last. A command fails by its status, or if it ends with a comment "# shows: TEXT" and TEXT is not in what it
# printed, also when looked at again for some seconds. After the first that fails nothing more is run. Whoever has no part in
# a block waits until the other one is through.
import os
import pathlib
import re
import selectors
import shlex
import subprocess
import sys
import time

ROLE = os.environ["RSMC_ROLE"]
SLOW = int(os.environ["RSMC_SLOW"])
PAGE = pathlib.Path(os.environ["RSMC_SELFTESTS"]).parent / "doc" / sys.argv[1]
# Addresses of the documentation, beside those of the tests.
ADDRESS = {"client": "192.0.2.1", "server": "192.0.2.2"}


def blocks(text):
    """Hosts or reason, line and text of each block of commands."""
    for match in re.finditer(r"^```sh ?(.*)\n((?:.*\n)*?)```$", text, re.MULTILINE):
        yield match[1], text[:match.start()].count("\n") + 2, match[2]


def is_whole(command):
    done = subprocess.run(["bash", "-n"], input=command, text=True, capture_output=True)
    return done.returncode == 0 and not done.stderr and not command.endswith("\\\n")


def commands(first, text):
    """Lines and commands of a block; a command goes on while the shell would ask for more."""
    command = ""
    for number, line in enumerate(text.splitlines(keepends=True), first):
        if not command:
            if not line.strip():
                continue
            first = number
        command += line
        if is_whole(command):
            yield first, command
            command = ""
    assert not command, f"{PAGE.name}:{first}: the shell would ask for more"


class Shell:
    def __init__(self):
        environment = {**os.environ, "TERM": "dumb"}
        self.process = subprocess.Popen(["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, env=environment, cwd=os.environ["TMPDIR"])
        self.ready = selectors.DefaultSelector()
        self.ready.register(self.process.stdout, selectors.EVENT_READ)
        self.count = 0

    def run(self, command, seconds):
        """Status (None: none in time) and output."""
        self.count += 1
        mark = f"@@{self.count}:"
        self.process.stdin.write(f"{command.rstrip()}\nprintf '%s%d\\n' {shlex.quote(mark)} $?\n".encode())
        self.process.stdin.flush()
        output, end = b"", time.monotonic() + seconds
        while True:
            found = re.search(re.escape(mark).encode() + rb"(\d+)\n", output)
            if found:
                return int(found[1]), output[:found.start()].decode(errors="replace")
            if not self.ready.select(max(0, end - time.monotonic())):
                return None, output.decode(errors="replace")
            chunk = os.read(self.process.stdout.fileno(), 65536)
            if not chunk:
                return self.process.wait(), output.decode(errors="replace")
            output += chunk


def run(shell, command):
    """Complaint about a command; none if all is well."""
    shows = re.search(r"\s# shows: (.*)$", command.rstrip())
    end = time.monotonic() + 20 * SLOW
    while True:
        status, output = shell.run(command, 60 * SLOW)
        if status == 0 and (not shows or shows[1] in output):
            # What goes on behind the reader's back has begun when he has typed the next line.
            if command.rstrip().endswith("&") or "--daemonize" in command:
                time.sleep(SLOW)
            return None
        # A command that looks at something which is only beginning is tried again.
        if status != 0 or time.monotonic() > end:
            break
        time.sleep(1)
    what = "did not end" if status is None else f"status {status}"
    if status == 0:
        what = f"did not show: {shows[1]}"
    return [what, *output.splitlines()[-40:]]


def points(parts):
    """The plan: of each command of this guest a point; what nobody runs is counted by the client."""
    plan = []
    for hosts, line, text in parts:
        untested = hosts.removeprefix("untested: ")
        if untested != hosts:
            mine = [(first, command, untested) for first, command in commands(line, text) if ROLE == "client"]
        else:
            assert hosts in ("server", "client", "both"), f"{PAGE.name}:{line}: {hosts}"
            mine = [(first, command, None) for first, command in commands(line, text) if hosts in (ROLE, "both")]
        plan.append(mine)
    return plan


def main():
    plan = points(list(blocks(PAGE.read_text())))
    assert any(plan), "no commands"
    print("KTAP version 1")
    print(f"1..{sum(map(len, plan))}", flush=True)
    subprocess.run(["ip", "addr", "add", ADDRESS[ROLE] + "/24", "dev", os.environ["RSMC_DEV"]], check=True)
    shell, number, failed = Shell(), 0, False
    for place, mine in enumerate(plan):
        for line, command, untested in mine:
            number += 1
            name = f"{PAGE.stem}.{line}"
            head = command.splitlines()[0]
            if untested:
                print(f"ok {number} - {name} # SKIP {untested}: {head}")
                continue
            if failed:
                print(f"not ok {number} - {name}\n# not run, as one before it failed: {head}", flush=True)
                continue
            complaint = run(shell, command)
            failed = complaint is not None
            print("# " + head)
            for text in complaint or []:
                print("# " + text)
            print(f"{'not ok' if failed else 'ok'} {number} - {name}", flush=True)
        # Both go on together, also when one has failed: its peer's commands then fail by themselves.
        subprocess.run(["rsmc-barrier", f"block-{place}", str(300 * SLOW)], check=True, stdout=subprocess.DEVNULL)
    shell.process.stdin.close()
    shell.process.wait(30 * SLOW)
    sys.exit(failed)


main()
