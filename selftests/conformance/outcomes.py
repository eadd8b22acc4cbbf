# SPDX-License-Identifier: GPL-2.0
"""outcomes.py PLAIN SMC MODE EXCLUDE.csv [ids]: which tests ended differently. With `ids` only their names.

PLAIN and SMC have lines `id<TAB>outcome`, the last of them `end<TAB>reached`."""
import csv
import sys


def read(path):
    r = {}
    for line in open(path):
        i, _, w = line.rstrip("\n").partition("\t")
        # A test with failing subtests has several lines: the worst one counts.
        if r.get(i) not in ("fail", "error"):
            r[i] = w
    return r


def numbers(outcomes):
    all = [w for i, w in outcomes.items() if i != "end"]
    return ", ".join(f"{all.count(w)} {w}" for w in sorted(set(all), reverse=True))


plain, smc = read(sys.argv[1]), read(sys.argv[2])
allowed = {}
mode = sys.argv[3]
with open(sys.argv[4]) as f:
    for row in csv.reader(l for l in f if not l.startswith("#")):
        if row[0] == mode:
            allowed[row[1]] = row[2:]
ids = sys.argv[5:] == ["ids"]
reached = plain.get("end") == smc.get("end") == "reached" and len(plain) >= 3
if ids and not reached:
    sys.exit("a run did not reach its end: no second look")
bad = []
for i in sorted(plain.keys() | smc.keys()):
    a, b = plain.get(i, "not run"), smc.get(i, "not run")
    if a == b:
        if a in ("fail", "error") and not ids:
            print(f"fails both ways: {i}")
        continue
    if i in allowed and allowed[i][:2] == [a, b]:
        if not ids:
            print(f"allowed: {i}: plain {a}, smc {b}: {allowed[i][2]}")
        continue
    bad.append(i)
    print(i if ids else f"differs: {i}: plain {a}, smc {b}")
if not ids:
    print(f"plainly: {numbers(plain)}; with SMC: {numbers(smc)}; {len(bad)} differ")
    if not reached:
        sys.exit("a run did not reach its end")
sys.exit(1 if bad and not ids else 0)
