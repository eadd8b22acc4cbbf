#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# `rsmc report --hardware` with a soft-RoCE device, without privileges; as a device should be, and with a fault.
. "$RSMC_SELFTESTS/lib.sh"

ktap_plan 15
cd "$TMPDIR" || exit 1
# list COMMAND...: the list of namespace a in JSON
list() { ns a "$@" rsmc report --hardware --json >list.json; }
field() { python3 -c 'import json, sys; it = json.load(open("list.json")); print(eval(sys.argv[1]))' "$1"; }
# The port of namespace a: all devices are seen where namespaces share them.
item() { field '{i["name"]: i["'"$2"'"] for p in it["ports"] if p["device"] == "rxe_a" for i in p["items"]}["'"$1"'"]'; }

check a_port_is_usable list env
is usable "$(field '[p["usable"] for p in it["ports"] if p["device"] == "rxe_a"]')" "[True]"
is host "$(field '{i["name"]: i["verdict"] for i in it["host"]}')" "{'kernel': 'ok', 'module': 'ok', 'namespaces': 'ok'}"
is module "$(field '[i["found"].split(",")[0] for i in it["host"] if i["name"] == "module"]')" "['rsmc']"
is protocol "$(item protocol verdict) $(item protocol found)" "ok RoCE"
is registration "$(item registration verdict)" ok
is state "$(item state verdict) $(item state found | cut -d, -f1)" "ok ACTIVE"
is addresses "$(item addresses found | tr ' ' '\n' | grep -cx "$RSMC_ADDR")" 1
is mtu "$(item mtu found)" "1500: RDMA packets carry 1024"
# Of the program, where it is installed and knows the device.
limits=$(item limits verdict)
if [ "$limits" = unknown ]; then
	skip limits "$(item limits found)"
else
	is limits "$limits $(item limits found | grep -c 'max_qp_wr [0-9]')" "ok 1"
fi
is why "$(field '[c["verdict"] for c in it["why"] if c["name"] == "module"]')" "['ok']"
list setpriv --reuid 65534 --clear-groups --inh-caps -all
is unprivileged "$(field '[p["usable"] for p in it["ports"] if p["device"] == "rxe_a"]') $(item registration verdict)" "[True] ok"

# A port whose interface is down cannot be used, and the text says what to do.
ns a ip link set va down
down() {
	list env
	[ "$(field '[p["usable"] for p in it["ports"] if p["device"] == "rxe_a"]')" = "[False]" ]
}
check down wait_for 10 down
check down_advice sh -c 'ip netns exec a rsmc report --hardware | grep -A1 "look  state" | grep -q "ip link set"'
ns a ip link set va up
# Nothing to use at all: a namespace of its own, where devices belong to one.
unshare -n -m sh -c 'mount -t sysfs sysfs /sys && rsmc report --hardware' >none.txt 2>none.err
status=$?
is none "$status $(grep -c 'SMC-R can use it' none.txt) $(cat none.err)" "1 0 rsmc: no RDMA port here can be used for SMC-R"
ktap_exit
