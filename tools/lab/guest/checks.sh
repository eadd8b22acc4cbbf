#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# checks.sh lockdep | held | leaks-clear | leaks-scan
# Asks the debug kernels. Exit 0: fine, 1: not (said on stderr), 4: this kernel
# cannot tell.
set -u
leaks=/sys/kernel/debug/kmemleak

case "$1" in
lockdep)
	[ -e /proc/lockdep_stats ] || exit 4
	if ! grep -Eq 'debug_locks: +1' /proc/lockdep_stats; then
		echo "lockdep has switched itself off" >&2
		exit 1
	fi
	;;
held)
	# What the module's locks were held over while its tests ran, from lockdep's own record: a fault in a program's
	# memory (mmap_lock), an allocation (fs_reclaim), a socket that a program may have locked (sk_lock). For a lock that
	# programs of several users wait for that is none of these, by way of other locks of ours neither.
	[ -r /proc/lockdep ] || exit 4
	awk '
		function names(text, into,   all, n, i) {
			n = split(text, all)
			for (i = 1; i <= n; i++) into[all[i]] = 1
		}
		function reaches(class, from,   all, n, i) {
			if ((from, class) in seen) return
			seen[from, class] = 1
			n = split(after[class], all, "\n")
			for (i = 1; i <= n; i++) {
				if (all[i] ~ /mmap_lock|fs_reclaim|^sk_lock-/ && all[i] !~ /RDMA-RXE/)
					wrong(from " is waited for by strangers, and held over " all[i] (from == class ? "" : " in " class))
				if (all[i] in after) reaches(all[i], from)
			}
		}
		function wrong(text) {
			if (!(text in told)) print text
			told[text] = bad = 1
		}
		BEGIN {
			names("Gates::lists Gates::places SmcrRegistry::groups ReadMostly::copies Rendezvous::waiting Candidates::waiting Orphans::all LossyMap::places " \
				"Converter::state Counters::peers Promotions::peers Rules::current Namespace::settling Namespace::name LinkGroup::resources " \
				"LinkGroup::state LinkGroup::timer Link::scheduler ConnTable::places RmbSlab::places Roster rdma::sq rdma::rq " \
				"rdma::region rdma::ports", shared)
			# Of one socket, connection or listener, of a namespace whose settings its owner changes, of a queue
			# pair that is being made or ended; and works, which lockdep shows as locks.
			names("SmcSock::handshake State::phase SmcSock::watch Incoming::progress_lock Incoming::state " \
				"Listener::moving Listener::queues Listener::timer SmcConn::writers SmcConn::readers SmcConn::timer " \
				"SmcConn::leases SmcConn::proto LocalDirection::writer LocalDirection::reader Registry::timer Registry::proc Rings::timer " \
				"SynHooks::installed ReadMostly::changing Rules::changing Converter::conversion Converter::turned " \
				"Remote::dialer Remote::side_connection Words::open Dialer::dial Closing::kept Remote::machine Remote::writer Remote::reader Gate::former " \
				"Link::stage rdma::channel rdma::mr rdma::fail rdma::reap rdma::close", own)
			names("LocalDirection::writer LocalDirection::reader SmcConn::writers SmcConn::readers " \
				"Remote::writer Remote::reader", faults)
		}
		/ FD: +[0-9]+ BD: / {
			class = $0
			sub(/.* BD: +[0-9]+ [^ ]+ /, "", class)
			sub(/#[0-9]+$/, "", class)
			sub(/\/[0-9]+$/, "", class)
			ours = class ~ /^(rsmc|kapi)::/
			if (ours && !(class in after)) after[class] = ""
		}
		/^ -> \[/ && ours {
			held = $0
			sub(/^ -> \[[^]]*\] /, "", held)
			after[class] = after[class] "\n" held
		}
		END {
			for (class in after) {
				name = class
				sub(/^(rsmc|kapi)::/, "", name)
				if (name in shared) reaches(class, class)
				else if (!(name in own) && name !~ /::(work|worker)$/)
					wrong(class ": a lock of which tools/lab/guest/checks.sh does not say who waits for it")
				if (!(name in faults) && after[class] ~ /mmap_lock/)
					wrong(class " is held over a fault in the memory of a program")
			}
			exit bad
		}' /proc/lockdep >&2 || exit 1
	;;
leaks-clear)
	[ -e "$leaks" ] || exit 4
	roots=/rsmc/lab/leakroots
	# shellcheck disable=SC2046
	[ ! -e $roots.ko ] || /sbin/insmod $roots.ko $(cat $roots.args) || exit 1
	# Boot-time objects count as seen once a scan has listed them.
	echo scan >"$leaks" && echo clear >"$leaks"
	;;
leaks-scan)
	[ -e "$leaks" ] || exit 4
	# Objects younger than five seconds are never reported, and what was on
	# its way out at the first scan is gone at the second.
	sleep 6
	echo scan >"$leaks"
	sleep 1
	echo scan >"$leaks"
	report=$(head -c 65536 "$leaks")
	[ -z "$report" ] && exit 0
	printf '%s\n' "$report" >&2
	exit 1
	;;
*)
	echo "usage: checks.sh lockdep|held|leaks-clear|leaks-scan" >&2
	exit 2
	;;
esac
