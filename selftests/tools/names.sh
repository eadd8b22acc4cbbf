#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# rsmc under the names of smc-tools: options, columns, exit codes; with either module. In two namespaces without
# RDMA (everything falls back), and in a pair of guests over RDMA.
. "$RSMC_SELFTESTS/lib.sh"
cd "$TMPDIR" || exit 1
for name in smcss smcr smcd smc_pnet smc_run smc_chk; do
	ln -s "$(command -v rsmc)" "$name" || exit 1
done
PATH=$TMPDIR:$PATH
# rsmc looks beside its own file for the library, wherever the link is.
children=
trap 'kill $children 2>/dev/null' EXIT
background() {
	"$@" &
	children="$children $!"
}
# status COMMAND...: its exit code
status() {
	"$@" >/dev/null 2>&1
	echo $?
}
# field EXPRESSION: of the JSON on standard input, called `it`
field() {
	python3 -c "import json, sys; it = json.load(sys.stdin); print(($1))"
}
# words: standard input with one blank between words
words() {
	tr -s ' ' | sed 's/ $//'
}

if [ "$RSMC_TOPO" = pair ]; then
	in_tree=
	grep -q '^smc ' /proc/modules && in_tree=1
	[ -z "$in_tree" ] || rsmc ueid add RSMC-DEFAULT
	verdicts='[(c["name"], c["verdict"]) for c in it["checks"]]'
	# By default connections of hosts whose device is software stay TCP.
	[ "$(cat /proc/sys/net/smc/path 2>/dev/null)" = 2 ] && first="('path', 'note'), " || first=
	well="[('module', 'ok'), ('eid', 'ok'), $first('device', 'ok'), ('route', 'ok'), ('mtu', 'ok'), ('gid', 'ok')]"
	if [ "$RSMC_ROLE" = server ]; then
		ktap_plan 6
		background smc_chk -S >served
		check server_listens wait_for 10 grep -q 'Server started on port 37373' served
		barrier listening
		barrier tested
		check server_saw_smc wait_for 10 grep -q "^$RSMC_PEER_ADDR:[0-9]*: SMC-R$" served
		check server_saw_plain_tcp wait_for 10 grep -q ": TCP, The peer did not offer SMC" served
		is server_group "$(smcr linkg | words | cut -d' ' -f2-)" "$(printf 'LG-Role LG-Type VLAN #Conns PNET-ID\nSERV SINGLE 0 1')"
		is server_socket "$(smcss -R | awk 'NR == 2 { print $1, $7, $8, $9 }')" "ACTIVE SMCR SERV rxe0"
		is all_is_well "$(rsmc why "$RSMC_PEER_ADDR" --json | field "$verdicts")" "$well"
		barrier looked
		ktap_exit
	fi
	ktap_plan 13
	barrier listening
	check live_test smc_chk -C "$RSMC_PEER_ADDR"
	is live_test_words "$(smc_chk -C "$RSMC_PEER_ADDR" | tail -n 1)" "    Success, using SMC-R"
	rsmc why "$RSMC_PEER_ADDR" --probe 37373 | sed 's/^/# /'
	is why_probe "$(rsmc why "$RSMC_PEER_ADDR" --probe 37373 --json |
		field 'it["probe"]["mode"], it["probe"]["fallback"], it["checks"][-1]["name"], it["checks"][-1]["verdict"]')" \
		"('SMC-R', None, 'option', 'ok')"
	is all_is_well "$(rsmc why "$RSMC_PEER_ADDR" --json | field "$verdicts")" "$well"
	is usable "$(rsmc dev --json | field '[(p["usable"], p["fault"]) for p in it]')" "[(True, None)]"
	ip netns add elsewhere
	is usable_elsewhere "$(ip netns exec elsewhere rsmc dev --json | field '[(p["ifindex"], p["fault"]) for p in it]')" \
		"[(0, 'no interface of this network namespace belongs to the port')]"
	ip netns delete elsewhere
	cat >hold.py <<'E'
import socket, sys
connection = socket.create_connection((sys.argv[1], 37373))
print("connected", flush=True)
sys.stdin.read()
E
	mkfifo hold
	smc_run python3 hold.py "$RSMC_PEER_ADDR" <hold >log &
	exec 9>hold
	check connected wait_for 20 grep -q connected log
	check plain_tcp python3 -c "import socket; socket.create_connection(('$RSMC_PEER_ADDR', 37373))"
	gone() { [ "$(smcss | tail -n +2 | wc -l)" = 1 ]; }
	check only_the_held_one wait_for 20 gone
	barrier tested
	id=$(smcr linkgroup | awk 'NR == 2 { print $1 }')
	is link "$(smcr -dd linkgroup link-show "$id" | words | sed 1d | cut -d' ' -f2-6,9-10)" \
		"CLNT SINGLE $RSMC_DEV LINK_ACTIVE 1 rxe0 1"
	is filter_filters "$(smcr linkgroup show ibdev rxe0 | wc -l) $(smcr linkgroup show ibdev rxe9 | wc -l)" "2 1"
	is device "$(smcr device | words | sed 1d)" "$RSMC_DEV rxe0 1 ACTIVE n/a Yes 1"
	is details "$(smcr -d linkgroup show "$id" | sed -n 's/^EID *: //p')" "RSMC-DEFAULT"
	barrier looked
	exec 9>&-
	wait
	ktap_exit
fi

ktap_plan 27
is smcss_help "$(status smcss --help)" 0
is smcss_wrong_usage "$(status smcss -l -a)" 1
is smcss_head "$(smcss | words)" "State UID Inode Local Address Peer Address Intf Mode"
is smcr_version "$(smcr --version | cut -d' ' -f1-3)" "smcr of rsmc"
is smcr_wrong_usage "$(status smcr nothing)" 255
is smcr_info "$(smcr info | sed -n 's/^RoCE: *//p')" "n/a"
is smcd_seid "$(status smcd seid)" 0
is smcd_devices "$(smcd device | head -n 1 | words)" "FID Type PCI-ID PCHID InUse #LGs PNET-ID"
is smcr_no_groups "$(smcr link show | words)" "LG-ID LG-Role LG-Type VLAN #Conns PNET-ID"

check ueid_add ns a smcr ueid add NAMES.TEST
is ueid_add_twice "$(status ns a smcr ueid add NAMES.TEST)" 1
is ueid_show "$(ns a smcr u | grep -cx NAMES.TEST)" 1
check ueid_del ns a smcd ueid del NAMES.TEST
check pnet_add ns a smc_pnet -a names1 -I va
is pnet_show "$(ns a smc_pnet -s NAMES1)" "NAMES1 va n/a 255"
is pnet_of_interface "$(ns a smc_chk -i va)" "NAMES1*"
check pnet_delete ns a smc_pnet --delete NAMES1
is pnet_empty "$(ns a smc_pnet)" ""
is pnet_wrong_usage "$(status smc_pnet -a NAMES1)" 1

background ip netns exec b env PATH="$PATH" smc_chk --server --port 7200 >served
check server_listens wait_for 10 grep -q 'Server started on port 7200' served
is live_test_fails "$(status ns a smc_chk -C "$RSMC_PEER_ADDR" -p 7200)" 1
ns a smc_chk -C "$RSMC_PEER_ADDR" -p 7200 >tested
check live_test_says_why grep -q 'Failed (TCP fallback), reasons:' tested
check live_test_client grep -q 'Client: 0x03030000 No device for SMC' tested
is no_service "$(ns a smc_chk -C "$RSMC_PEER_ADDR" -p 7299 | grep -c 'could not connect.*refused')" 1
is listener "$(ns b smcss -l | awk 'NR == 2 { print $1, $4 }' | sed 's/ .*:/ /')" "LISTEN 7200"
is stats_json "$(ns a smcr stats json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["SMCR"]))')" 65
is stats_fallback "$(ns a smcr -da stats | words | grep -A1 '^ TCP fallback' | head -n 1)" " TCP fallback 2 (client 2, server 0)"
ktap_exit
