#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# `rsmc run`, `ss`, `why`, `stats`, `ueid`, `pnet` as a user meets them, in two namespaces, without RDMA: an
# SMC client against a plain TCP server and against an SMC server. The in-tree module passes as well
# (what only rsmc has is skipped then).
. "$RSMC_SELFTESTS/lib.sh"

ktap_plan 62
. "$RSMC_SELFTESTS/tools/served.sh"

check listeners_appear wait_for 10 listeners
check preload_says_smc grep -q 'is SMC (IPPROTO_SMC)' server.log
is listener_state "$(ns b rsmc ss -l --json --sport 7002 | field 'it[0]["state"]')" LISTEN
is listener_mode "$(ns b rsmc ss -l --json --sport 7002 | field 'it[0]["mode"]')" None
is listener_process "$(ns b rsmc ss -l --json --sport 7003 | field 'it[0]["processes"][0]["comm"]')" python3
is hidden_by_default "$(ns b rsmc ss --json)" "[]"
is other_namespace_is_empty "$(ns a rsmc ss -a --json)" "[]"

check plain_listener wait_for 10 tcp_listens
client
check connected wait_for 20 is_connected
is client_sockets "$(grep -c 'is SMC' client.debug)" 3
is connections "$(ns a rsmc ss --json | field 'len(it)')" 3
is states "$(ns a rsmc ss --json | field '{entry["state"] for entry in it}')" "{'ACTIVE'}"
is all_fell_back "$(ns a rsmc ss --json | field '{entry["mode"] for entry in it}')" "{'TCP'}"
is reason_plain_server "$(ns a rsmc ss --json --dport 7001 | field 'it[0]["fallback"]["name"]')" PEERNOSMC
is mode_filter "$(ns a rsmc ss --json --mode smcr --mode smcd)" "[]"
is server_has_two "$(ns b rsmc ss --json | field 'len(it)')" 2
is server_was_declined "$(ns b rsmc ss --json | field '{entry["fallback"]["name"] for entry in it}')" "{'PEERDECL'}"
check table_in_words sh -c "ip netns exec a rsmc ss | grep -q 'did not offer SMC'"
check numeric sh -c "ip netns exec a rsmc ss -n | grep -q 0x03010000"

# Addresses of IPPROTO_SMC sockets: the in-tree module does not tell them.
if [ -n "$in_tree" ]; then
	skip addresses "the in-tree module does not tell addresses of IPPROTO_SMC sockets"
	skip addresses_v6 "the in-tree module does not tell addresses of IPPROTO_SMC sockets"
else
	is addresses "$(ns a rsmc ss --json --dport 7001 | field 'it[0]["local"]["address"], it[0]["remote"]["address"]')" \
		"('$RSMC_ADDR', '$RSMC_PEER_ADDR')"
	is addresses_v6 "$(ns a rsmc ss --json --dport 7003 | field 'it[0]["local"]["address"], it[0]["remote"]["address"]')" \
		"('$RSMC_ADDR6', '$RSMC_PEER_ADDR6')"
fi

# Bytes of a fallen back connection are TCP's, found by its addresses. There was no SMC handshake with 7001.
if [ -n "$in_tree" ]; then
	skip bytes "the in-tree module does not tell addresses of IPPROTO_SMC sockets"
else
	is bytes "$(ns a rsmc ss --json --dport 7001 | field 'it[0]["bytes"]["received"], it[0]["bytes"]["sent"]')" "(1, 0)"
fi
# The server's end of the third one is a socket of AF_SMC, whose addresses both modules tell.
is filter_address "$(ns b rsmc ss --json --src fd77::/16 | field '[s["local"]["port"] for s in it]')" "[7003]"
is filter_reason "$(ns a rsmc ss --json --reason PEERNOSMC | field 'len(it)')" 1
is filter_process "$(ns a rsmc ss --json --process python3 | field 'len(it)')" 3
is filter_other_process "$(ns a rsmc ss --json --process python)" "[]"
is watch_prints_lines "$(ns a rsmc ss --json --watch=0.1 --count 3 | grep -c '^\[{')" 3

is why_client "$(ns a rsmc why --json | field 'it["fallback_client"], it["fallback_server"]')" "(3, 0)"
is why_plain_server "$(ns a rsmc why --json | field '[r["count"] for r in it["reasons"] if r["name"] == "PEERNOSMC"]')" "[1]"
if [ -n "$in_tree" ]; then
	skip why_peer "the in-tree module does not count by peer"
	skip why_other_peer "the in-tree module does not count by peer"
else
	check why_peer sh -c "ip netns exec a rsmc why $RSMC_PEER_ADDR | grep -q PEERNOSMC"
	check why_other_peer sh -c "ip netns exec a rsmc why 192.0.2.1 | grep -q 'No fallback'"
fi
# A namespace of which nobody has made use yet.
is why_elsewhere "$(unshare -n rsmc why --json | field 'it["fallback_client"], it["fallback_server"]')" "(0, 0)"

# The tables and counters by netlink.
ueids() { ns a rsmc ueid show --json | field '"RSMC-TEST.1" in it'; }
check ueid_add ns a rsmc ueid add rsmc-test.1
is ueid_added "$(ueids)" True
is ueid_twice "$(status ns a rsmc ueid add RSMC-TEST.1)" 5
check ueid_del ns a rsmc ueid del RSMC-TEST.1
is ueid_deleted "$(ueids)" False
is ueid_del_unknown "$(status ns a rsmc ueid del RSMC-TEST.1)" 5
is ueid_not_permitted "$(status setpriv --reuid 65534 --clear-groups --inh-caps -all rsmc ueid add A)" 4
check pnet_add ns a rsmc pnet add net1 -I va
is pnet_added "$(ns a rsmc pnet show net1 --json | field 'it[0]["interface"], it[0]["ibdevice"]')" "('va', None)"
is pnet_twice "$(status ns a rsmc pnet add net2 -I va)" 5
is pnet_is_by_namespace "$(ns b rsmc pnet show --json)" "[]"
check pnet_del ns a rsmc pnet del NET1
is pnet_deleted "$(ns a rsmc pnet show --json)" "[]"
is stats "$(ns a rsmc stats --json | field 'it["fallback"]["client"], it["smc_r"]["client_v2"]')" "(3, 0)"
is prometheus "$(ns a rsmc stats --prometheus | grep 'client.*PEERNOSMC')" \
	'smc_fallback_reasons_total{role="client",reason="PEERNOSMC",code="0x03010000"} 1'

# Connections that begin as TCP, and stay it: there is no RDMA device.
cat > echo.py <<'E'
import socket
listener = socket.create_server(("", 7004))
while True:
    connection, _ = listener.accept()
    while got := connection.recv(100):
        connection.sendall(got)
E
cat > ping.py <<'E'
import socket, sys, time
connection = socket.create_connection((sys.argv[1], 7004))
for _ in range(20):
    connection.sendall(b"x")
    assert connection.recv(1) == b"x"
print("connected", flush=True)
time.sleep(600)
E
if [ -n "$in_tree" ]; then
	for name in connected mode bytes stats prometheus top why; do
		skip "first_$name" "the in-tree module negotiates before data"
	done
else
	for namespace in a b; do
		ns "$namespace" sysctl -qw net.smc.path=2 net.smc.path_promote=4
	done
	: > client.log
	background ip netns exec b rsmc run -- python3 echo.py
	echoes() { [ "$(ns b rsmc ss -l --json --sport 7004 | field 'len(it)')" = 1 ]; }
	wait_for 20 echoes
	background ip netns exec a rsmc run -- python3 ping.py "$RSMC_PEER_ADDR" > client.log
	check first_connected wait_for 20 is_connected
	first() { ns a rsmc ss --json --dport 7004 | field "$1"; }
	is first_mode "$(first '(lambda s: (s["mode"], s["fallback"]["name"], s["began_as_tcp"]["reason"]["name"], s["began_as_tcp"]["step"]))(it[0])')" \
		"('TCP first', 'NOSMCDEV', 'NOSMCDEV', 'tcp')"
	is first_bytes "$(first 'it[0]["bytes"]["received"], it[0]["bytes"]["sent"], it[0]["began_as_tcp"]["ring_sent"]')" "(20, 20, 0)"
	is first_stats "$(ns a rsmc stats --absolute --json |
		field '(lambda c: (c["connections"], c["begun"], c["refused"] > 0))(it["began_as_tcp"]["client"])')" "(1, 0, True)"
	is first_prometheus "$(ns a rsmc stats --absolute --prometheus | grep '^smc_promotions_begun_total{role="client"}')" \
		'smc_promotions_begun_total{role="client"} 0'
	check first_top sh -c "ip netns exec a rsmc top | grep -q '1 TCP first, 0 being promoted'"
	check first_why sh -c "ip netns exec a rsmc why $RSMC_PEER_ADDR | grep -q 'Not promoted, .*NOSMCDEV'"
fi

# What TCP has carried for the namespace's sockets, open and closed.
by_tcp() { ns a rsmc stats --absolute --prometheus | sed -n 's/^smc_tcp_bytes_total.* //p' | paste -sd' '; }
if [ -n "$in_tree" ]; then
	skip tcp_bytes "the in-tree module does not count them"
else
	is tcp_bytes "$(by_tcp)" \
		"$(ns a rsmc ss --json | field '"%d %d" % tuple(sum(s["bytes"][way] for s in it) for way in ("sent", "received"))')"
fi
bytes=$(by_tcp)
check stats_reset ns a rsmc stats reset
is stats_count_from_there "$(ns a rsmc stats --json | field 'it["fallback"]["client"], it["fallback"]["reasons"]')" "(0, [])"
is stats_absolute "$(ns a rsmc stats --absolute --json | field 'it["fallback"]["client"], it["since"]')" "(3, None)"
is stats_reset_is_by_namespace "$(ns b rsmc stats --json | field 'it["fallback"]["server"], it["since"]')" "(2, None)"
is stats_rates "$(ns a rsmc stats --interval 0.1 --count 2 --json | grep -c '"fallback.client":0')" 2

# The end of the program is the end of its sockets.
kill $children 2> /dev/null
children=
gone() { [ "$(ns a rsmc ss -a --json)" = "[]" ] && [ "$(ns b rsmc ss -l --json)" = "[]" ]; }
check sockets_are_gone wait_for 30 gone
is tcp_bytes_stay "$(by_tcp)" "$bytes"
ktap_exit
