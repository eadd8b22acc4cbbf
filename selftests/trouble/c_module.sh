#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# trouble/c_module.sh module|device|client_module
# The in-tree module in the server's guest loses its program and then itself, or its RDMA device, with data
# of our connections under way: each of them ends, the next one falls back and says why, and
# when all is back it is SMC-R again. client_module: the same of its program and itself, as the client.
. "$RSMC_SELFTESTS/lib.sh"
. "$RSMC_SELFTESTS/trouble/common.sh"

PEERNOSMC=0x03010000 PEERDECL=0x05000000

stressed() { timeout "$(slow 60)" stress --info off "$@" >/dev/null 2>&1; }

# NAME OPTION...: new connections are of that mode.
now() {
	name=$1
	shift
	check "$name" timeout "$(slow 60)" stress --bulk 1 --short 5 "$@" at_once short bulk
}

# Both sides' way to connections under load.
loaded() {
	if [ "$RSMC_ROLE" = server ]; then
		serving "$TMPDIR/log" --info off --eof ok --limit 30
		barrier listening
	else
		barrier listening
		holding "$TMPDIR/log" --mode 0 --eof ok
		check begun grep "all .* carry data" "$TMPDIR/log"
	fi
	barrier carrying
}

device_server() {
	ktap_plan 2
	loaded
	check device_removed rdma link del rxe0
	stressed
	check device_back rdma link add rxe0 type rxe netdev "$RSMC_DEV"
	stressed
	# Now and then its module keeps a socket for ever after that; the client has this guest killed.
	barrier all
	sleep 60
}

device_client() {
	ktap_plan 4
	loaded
	ended c_device_removed "$client" "$TMPDIR/log" 6
	sed 's/^/# /' "$TMPDIR/log"
	now fallback_without_device --mode 1 --reason $PEERDECL
	now smc_again --mode 0
	barrier all
	rsmc-barrier kill-peer 2>/dev/null
}

module_server() {
	ktap_plan 3
	loaded
	pkill -9 survivor
	wait "$server"
	# The link group lives on without its connections, for ten minutes. Sockets that are gone here
	# wait for the client's end of them.
	check module_removed wait_for 20 sh -c '{ rmmod smc_diag; rmmod smc; } 2>/dev/null; ! grep "^smc " /proc/modules'
	stressed --family tcp
	serving "$TMPDIR/plain" --family tcp --kinds idle --each 1
	barrier plain
	barrier refused
	pkill -9 survivor
	check module_back modprobe smc
	check id_back rsmc ueid add RSMC-DEFAULT
	stressed
}

module_client() {
	ktap_plan 5
	loaded
	# Of a process that is killed while its send queue is full the module there may lose the last
	# word. Then there is only TCP's FIN, and ten seconds of silence after it.
	ended c_program_killed "$client" "$TMPDIR/log" 14
	sed 's/^/# /' "$TMPDIR/log"
	now fallback_without_module --mode 1 --reason $PEERNOSMC
	barrier plain
	sysctl -qw net.smc.strict=1
	survivor hold --mode 0 --kinds idle --each 1 >"$TMPDIR/log" 2>&1
	sysctl -qw net.smc.strict=0
	check strict_refuses grep "connect: EPROTONOSUPPORT" "$TMPDIR/log"
	barrier refused
	now smc_again --mode 0
}

client_module_server() {
	ktap_plan 4
	serving "$TMPDIR/log" --mode 0 --eof ok --limit 30
	barrier listening
	barrier carrying
	check carried grep "all .* carry data" "$TMPDIR/log"
	ended c_program_killed "$server" "$TMPDIR/log" 14
	sed 's/^/# /' "$TMPDIR/log"
	check fallback_without_module timeout "$(slow 60)" stress --mode 1 --reason $PEERNOSMC
	barrier back
	check smc_again timeout "$(slow 60)" stress --mode 0
}

client_module_client() {
	ktap_plan 4
	barrier listening
	holding "$TMPDIR/log" --info off --mode 0 --eof ok
	check begun grep "all .* carry data" "$TMPDIR/log"
	barrier carrying
	pkill -9 survivor
	wait "$client"
	check module_removed wait_for 20 sh -c '{ rmmod smc_diag; rmmod smc; } 2>/dev/null; ! grep "^smc " /proc/modules'
	stressed --family tcp --bulk 1 --short 5 at_once short bulk
	modprobe smc
	check id_back rsmc ueid add RSMC-DEFAULT
	barrier back
	# Not by `stressed`: what it prints says which connection was not SMC-R.
	now smc_again --info off --mode 0
}

# The in-tree module's guest.
case $1-$RSMC_ROLE in
client_module-client | module-server | device-server) rsmc ueid add RSMC-DEFAULT ;;
esac
"$1_$RSMC_ROLE"
ktap_exit
