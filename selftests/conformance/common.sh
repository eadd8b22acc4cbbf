#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# Shared by the scripts here. RUN is the prefix that turns a command's sockets into SMC ones, or empty.
. "$RSMC_SELFTESTS/lib.sh"
PATH=$PATH:/usr/sbin:/sbin
FAMILY=${RSMC_TEST_FAMILY:-inet}
# With --smc there are RDMA devices and every connection has to be SMC; else every one falls back.
# With --local every one begins as TCP, and goes through memory then; with --flip N besides, each direction changes
# carriers after N messages at most, all the time.
# With --convert it is the sysctl tcp2smc that turns them into such, and the programs are started as ever.
# With two guests (pair) the servers, b, are in one of them and the clients, a, in the other: a script that can be
# run so asks `serves` and `asks`.
MODE=fallback
STRICT=
CONVERT=
FLIP=0
paths=0
if [ "${1-}" = --convert ]; then
	CONVERT=1
	shift
fi
if [ "${1-}" = --local ]; then
	MODE=local
	paths=1
	shift
	if [ "${1-}" = --flip ]; then
		FLIP=$2
		shift 2
	fi
fi
if [ "${1-}" = --smc ]; then
	MODE=smc
	STRICT=--strict
	shift
fi

# Between two guests the default is what it is without paths.
for side in a b; do
	[ ! -e /proc/sys/net/smc/path ] || [ "$RSMC_TOPO" = pair ] || ns $side sysctl -qw net.smc.path=$paths net.smc.path_flip="$FLIP" 2>/dev/null || :
done

# serves, asks   whether the servers, the clients are in this guest
serves() {
	[ "$RSMC_ROLE" != client ]
}
asks() {
	[ "$RSMC_ROLE" != server ]
}

# ask NAME COMMAND...   a point of the clients
ask() {
	! asks || check "$@"
}

need() {
	for p; do
		command -v "$p" >/dev/null || skip_all "no $p here"
	done
}

# run a|b plain|smc COMMAND...   in a namespace, plainly or with SMC sockets
run() {
	run_ns=$1
	run_kind=$2
	shift 2
	if [ -n "$CONVERT" ]; then
		run_value=0
		[ "$run_kind" = plain ] || run_value=1
		convert "$run_ns" $run_value
		ns "$run_ns" "$@"
	elif [ "$run_kind" = smc ]; then
		# shellcheck disable=SC2086
		ns "$run_ns" rsmc run --family "$FAMILY" $STRICT -- "$@"
	else
		ns "$run_ns" "$@"
	fi
}

# convert a|b VALUE   of the sysctl, which is written only if it changes: that takes half a second
convert() {
	[ "$(ns "$1" sysctl -n net.smc.tcp2smc)" = "$2" ] || ns "$1" sysctl -qw net.smc.tcp2smc="$2"
}
if [ -n "$CONVERT" ]; then
	ns a sysctl -qw net.smc.tcp2smc=1 || skip_all "this kernel converts no sockets"
fi

# counter a|b NAME   one of the family's counters in a namespace
counter() {
	ns "$1" awk -v k="$2" '$1 == k { print $2; f = 1 } END { if (!f) print 0 }' /proc/net/smc_fallback
}

# gone a|b   connections whose client has not spoken SMC, counted by the server in a namespace
gone() {
	ns "$1" awk '$1 == "reason" && $2 == "server" && $3 == "0x03010000" { n = $4 } END { print n + 0 }' /proc/net/smc_fallback
}

# counted a|b client|server   connections of the wanted mode, counted in a namespace
counted() {
	if [ $MODE = smc ]; then
		counter "$1" smc_connections
	elif [ $MODE = local ]; then
		counter "$1" "tcp_first_$2"
	else
		counter "$1" "fallback_$2"
	fi
}

# moved a|b   ends of connections of a namespace that have left TCP for a local path
moved() {
	echo $(($(counter "$1" local_client) + $(counter "$1" local_server)))
}

# proof NAME KIND BEFORE_CLIENT BEFORE_SERVER AT_LEAST: with SMC at least AT_LEAST new connections on
# each side; plainly none at all.
proof() {
	proof_c=$(($(counted a client) - $3))
	proof_s=$(($(counted b server) - $4))
	echo "# $1 $2: $proof_c client and $proof_s server connections of the family"
	if [ "$2" = smc ]; then
		proof_f=0
		if [ $MODE = smc ]; then
			for proof_k in fallback_client fallback_server strict_refused; do
				proof_f=$((proof_f + $(counter a $proof_k) + $(counter b $proof_k)))
			done
			# A client that ends before it has said a word (wrk's last connections) is a connection without SMC
			# to the server. No other client is: strict ones do not come without it.
			proof_f=$((proof_f - $(gone a) - $(gone b)))
		fi
		[ $proof_c -ge "$5" ] && [ $proof_s -ge "$5" ] && [ $proof_f = 0 ] && ok "$1.used_smc" ||
			not_ok "$1.used_smc" "wanted at least $5 on each side; fallbacks and refusals: $proof_f"
	else
		[ $proof_c = 0 ] && [ $proof_s = 0 ] && ok "$1.used_tcp" || not_ok "$1.used_tcp" "wanted none"
	fi
}

# explain   where the connections and the devices stand, for a point that failed
explain() {
	for side in a b; do
		ns $side rsmc ss -a
		ns $side rsmc stats
	done
	grep -vx 0 /sys/class/infiniband/*/ports/1/hw_counters/* 2>/dev/null | sed 's|.*infiniband/||'
}

# up PORT [SECONDS]: something listens on PORT in b
up() {
	wait_for "${2:-20}" listens "sport = :$1"
}
listens() { # FILTER
	ns b ss -ltnH "$1" | grep -q .
}

# closed PART   nothing listens to addresses with this part
closed() {
	! ns b ss -ltnH | grep -q "$1"
}

# nginx_conf MAIN   a configuration for nginx, in $TMPDIR: MAIN, and for http what standard input says
nginx_conf() {
	mkdir -p "$TMPDIR/www" "$TMPDIR/tmp"
	chmod 755 "$TMPDIR" "$TMPDIR/www"
	cat - >"$TMPDIR/http" && cat >"$TMPDIR/nginx.conf" <<END
daemon off;
user root;
pid $TMPDIR/nginx.pid;
error_log $TMPDIR/error.log;
$1
http {
	access_log off;
	client_body_temp_path $TMPDIR/tmp/body;
	proxy_temp_path $TMPDIR/tmp/proxy;
	fastcgi_temp_path $TMPDIR/tmp/f;
	uwsgi_temp_path $TMPDIR/tmp/u;
	scgi_temp_path $TMPDIR/tmp/s;
	include $TMPDIR/http;
}
END
}

# serve KIND PORT COMMAND...: a server in the background, until it listens; `served` ends them all
serve() {
	serve_kind=$1
	serve_port=$2
	shift 2
	serves || return 0
	run b "$serve_kind" setsid sh -c 'echo $$ >>"$0" && exec "$@"' "$TMPDIR/served" "$@" >"$TMPDIR/server.$serve_port" 2>&1 &
	up "$serve_port" 60 || tail -n 20 "$TMPDIR/server.$serve_port"
}
served() {
	for served_pid in $(cat "$TMPDIR/served" 2>/dev/null); do
		pkill -s "$served_pid"
	done
	rm -f "$TMPDIR/served"
}
