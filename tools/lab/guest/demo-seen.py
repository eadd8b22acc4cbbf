# SPDX-License-Identifier: GPL-2.0
"""demo-seen.py SEEN COUNTERS [local]: tells of the connections that `rsmc ss --json` has seen, and fails unless all were
SMC, by that and by the module's counters; with `local` unless all were within this kernel."""
import json
import sys

seen = {}
with open(sys.argv[1]) as lines:
    for line in lines:
        try:
            entries = json.loads(line)
        except ValueError:
            continue  # The last line may be half a one.
        for entry in entries:
            if entry["mode"] is not None:
                seen[entry["local"]["port"]] = entry
with open(sys.argv[2]) as lines:
    counters = dict(line.split()[:2] for line in lines if len(line.split()) == 2)


def end(entry, which):
    return f"{entry[which]['address']}:{entry[which]['port']}"


def why(entry):
    fallback = entry.get("fallback")
    return f"{fallback['text']} ({fallback['name']})" if fallback else ""


if sys.argv[3:] == ["local"]:
    first, moved = int(counters["tcp_first_client"]), int(counters["local_client"])
    modes = [entry["mode"] for entry in seen.values()]
    for entry in list(seen.values())[:1]:
        print(f"`rsmc ss` while rsmc's line ran: {end(entry, 'local')} -> {end(entry, 'remote')} {entry['mode']},", end=" ")
        print(f"as {modes.count('SMC-D')} of {len(modes)} connections")
    # Before each run redis-benchmark asks one question on a connection of its own.
    print(f"the module has counted {moved} connections whose client wrote into memory, {first - moved} with one message")
    sys.stdout.flush()
    if first - moved > 2 or int(counters["fallback_client"]) or modes.count("SMC-D") != len(modes) or not modes:
        sys.exit(f"demo: {first - moved} of {first} connections of rsmc's line stayed TCP")
    sys.exit()

ROW = "{:<18} {:<16} {:<6} {}"
print("the connections of redis-benchmark, by `rsmc ss` while it ran:")
print(ROW.format("Local", "Peer", "Mode", "Why TCP").rstrip())
for entry in sorted(seen.values(), key=lambda entry: entry["local"]["port"]):
    print(ROW.format(end(entry, "local"), end(entry, "remote"), entry["mode"], why(entry)).rstrip())
smc, fallback = int(counters["smc_connections"]), int(counters["fallback_client"])
if (brief := smc + fallback - len(seen)) > 0:
    print(f"and {brief} that began and ended between two looks")
print(f"the client has counted {smc} connections over SMC, {fallback} that fell back to TCP")
sys.stdout.flush()
plain = [entry for entry in seen.values() if not entry["mode"].startswith("SMC")]
if fallback or plain:
    reasons = {why(entry) for entry in plain} - {""}
    sys.exit(f"demo: {max(fallback, len(plain))} of {smc + fallback} connections were not SMC: {', '.join(reasons)}")
if not seen or not smc:
    sys.exit("demo: no connection was seen")
