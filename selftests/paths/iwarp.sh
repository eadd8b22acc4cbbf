#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# An RDMA device on the right interface that is of no use: SMC-R runs over RoCE, and this one speaks iWARP. It
# is shown with the reason, connections stay TCP's, and a RoCE device on the same interface is taken instead.
. "$RSMC_SELFTESTS/lib.sh"

transfers() { stress --mode "$1" --bulk 1 --short 3 short bulk; }
counted() { ns "$1" grep -q "^reason $2 0x03030000 " /proc/net/smc_fallback; }
devices() {
	ns "$1" rsmc dev --json | python3 -c '
import json, sys
print(sorted((p["device"], p["roce"], p["usable"], p["fault"]) for p in json.load(sys.stdin) if p["ifindex"]))'
}
siw="('siw_a', False, False, 'the port does not speak RoCE')"

ktap_plan 10
modprobe siw && modprobe rdma_rxe
for end in a b; do
	check "add.$end" ns "$end" rdma link add "siw_$end" type siw netdev "v$end"
done
check fallback transfers 1
check client.reason counted a client
is shown "$(devices a)" "[$siw]"
for end in a b; do ns "$end" rdma link add "rxe_$end" type rxe netdev "v$end"; done
check roce transfers 0
is both "$(devices a)" "[('rxe_a', True, True, None), $siw]"
for end in a b; do
	check "delete.$end" ns "$end" rdma link delete "siw_$end"
done
check after transfers 0
ktap_exit
