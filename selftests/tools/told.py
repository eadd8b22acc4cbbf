# SPDX-License-Identifier: GPL-2.0
# told.py PEER client|server own|declined|refused (NAME WORD INODE)...: whether `rsmc ss`, `stats` and `why`
# tell these reasons to fall back, in words, with advice that has the word; see src/bin/why.
import json
import re
import subprocess
import sys


def rsmc(*words):
    done = subprocess.run(["rsmc", *words], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"rsmc {' '.join(words)}: {done.returncode} {done.stderr}")
    return done.stdout


def check(what, good):
    global bad
    if not good:
        bad = True
        print(what)


def explained(text, heading, entry, word):
    """The block of a reason: what it is called, the sentence, and the advice."""
    lines = text.splitlines()
    at = [i for i, line in enumerate(lines) if re.search(f"^{heading}: {entry['code']} {entry['name']}$", line)]
    check(f"no heading {heading} {entry['name']} in {text}", at)
    for i in at[:1]:
        sentence, advice = (lines[i + 1 :] + ["", ""])[:2]
        check(f"sentence {sentence!r}", sentence == f"  {entry['text']}.")
        check(f"advice {advice!r} without {word}", advice.startswith("  What to do: ") and word in advice)


def counted(entries, name, word):
    """The entry of a reason in JSON."""
    found = [entry for entry in entries if entry["name"] == name]
    check(f"{name} is not in {entries}", len(found) == 1)
    for entry in found:
        check(f"{entry} has no words", len(entry["text"]) > 10 and "nknown" not in entry["text"])
        check(f"{entry} counts nothing", entry.get("count", 1) >= 1)
        check(f"advice of {entry} lacks {word}", word is None or word in entry["advice"])
    return found[0] if found else None


bad = False
peer, role, kind = sys.argv[1:4]
names, words, inodes = sys.argv[4::3], sys.argv[5::3], sys.argv[6::3]
assert len(names) == len(inodes) > 0
sockets = {entry["inode"]: entry for entry in json.loads(rsmc("ss", "-a", "--json"))}
table = rsmc("ss", "-a")
stats, stats_text = json.loads(rsmc("stats", "--json"))["fallback"]["reasons"], rsmc("stats")
why, why_text = json.loads(rsmc("why", "--json")), rsmc("why")
to_peer, to_peer_text = json.loads(rsmc("why", peer, "--json")), rsmc("why", peer)

for name, word, inode in zip(names, words, inodes):
    own, own_word = ("PEERDECL", "peer") if kind == "declined" else (name, word)
    # The counters, by role and by peer. A socket that gave SMC up by itself has no peer yet.
    mine = [entry for entry in why["reasons"] if entry["role"] == role]
    entry = counted(mine, own, own_word)
    if not entry:
        continue
    explained(why_text, rf"\d+ as {role}", entry, own_word)
    counted([entry for entry in stats if entry["role"] == role], own, None)
    check(f"{own} is not in {stats_text}", f"as {role}: {own} {entry['text']}" in stats_text)
    if own != "OPTUNSUPP":
        counted(to_peer["peers"], own, own_word)
        explained(to_peer_text, rf"\d+ connections? with {re.escape(peer)}", entry, own_word)
    if kind == "refused":
        check(f"refused: {why['strict_refused']}", why["strict_refused"] >= 1)
        check("strict mode is not told", "failed: strict mode" in why_text)
        continue
    # The socket.
    socket = sockets.get(int(inode))
    check(f"no socket {inode} in {sockets.keys()}", socket)
    if not socket:
        continue
    fallback = socket["fallback"]
    check(f"{socket['mode']} {fallback}", socket["mode"] == "TCP" and fallback["name"] == own)
    check(f"{fallback} has other words", fallback["text"] == entry["text"])
    line = [line for line in table.splitlines() if re.search(rf"\s{inode}\s", line)]
    shown = fallback["peer"]["text"] if kind == "declined" else entry["text"]
    check(f"{shown} is not in {line}", len(line) == 1 and shown in line[0])
    # What the peer said.
    if kind == "declined":
        check(f"{fallback['peer']} is not {name}", fallback["peer"]["name"] == name)
        said = counted(why["declined"], name, word)
        if said:
            explained(why_text, rf"\d+ open connections?", said, word)
            check(f"other words: {fallback['peer']}", said["text"] == fallback["peer"]["text"])
        counted(to_peer["declined"], name, word)
sys.exit(bad)
