#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Services that people run, and languages with network code of their own, over SMC-R by the sysctl tcp2smc alone;
# then they are TCP again: memcached, sshd with scp, PostgreSQL with pgbench, Go, Java.
# --megabytes N: what scp copies (16).
. "$RSMC_SELFTESTS/conformance/common.sh"
MB=16
[ "${1-}" != --megabytes ] || MB=$2
PG=$(echo /usr/lib/postgresql/*/bin)
PATH=$PATH:$PG
need memcached sshd scp ssh-keygen initdb pgbench setpriv java echo-go python3 ss

chmod 755 "$TMPDIR"
stop() {
	ip netns pids b | xargs -r kill 2>/dev/null
}
trap stop EXIT
serve() { # KIND PORT COMMAND...: in the background, until it listens
	serve_kind=$1
	serve_port=$2
	shift 2
	run b "$serve_kind" "$@" >"$TMPDIR/server.$serve_port" 2>&1 &
	up "$serve_port" 60 || tail -n 20 "$TMPDIR/server.$serve_port"
}

# memcached: values of several sizes, over a few connections.
cat >"$TMPDIR/cached.py" <<'END'
import os, socket
for size in (1, 1000, 100000, 1000000):
    s = socket.create_connection(("10.77.0.2", 9010), timeout=60)
    value, f = os.urandom(size), s.makefile("rb")
    s.sendall(b"set k 0 0 %d\r\n%s\r\nget k\r\n" % (size, value))
    assert f.readline() == b"STORED\r\n"
    assert f.readline() == b"VALUE k 0 %d\r\n" % size
    assert f.read(size + 7) == value + b"\r\nEND\r\n"
END

# sshd, with keys of its own.
mkdir -p /run/sshd
ssh-keygen -q -t ed25519 -N '' -f "$TMPDIR/host"
ssh-keygen -q -t ed25519 -N '' -f "$TMPDIR/user"
cat >"$TMPDIR/sshd_config" <<END
ListenAddress 10.77.0.2:9011
HostKey $TMPDIR/host
AuthorizedKeysFile $TMPDIR/user.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
Subsystem sftp internal-sftp
END
head -c "${MB}000000" /dev/urandom >"$TMPDIR/big"
copies() { # KIND: there and back again
	rm -f "$TMPDIR/there" "$TMPDIR/back"
	set -- "$1" scp -q -P 9011 -i "$TMPDIR/user" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null
	run a "$@" "$TMPDIR/big" "10.77.0.2:$TMPDIR/there" &&
		run a "$@" "10.77.0.2:$TMPDIR/there" "$TMPDIR/back" && cmp "$TMPDIR/big" "$TMPDIR/back"
}

# PostgreSQL as its own user.
as_postgres() {
	setpriv --reuid=postgres --regid=postgres --clear-groups "$@"
}
mkdir "$TMPDIR/pg"
chown postgres "$TMPDIR/pg"
as_postgres initdb -D "$TMPDIR/pg/data" -A trust -N --no-instructions >"$TMPDIR/initdb" 2>&1 || cat "$TMPDIR/initdb"
{
	echo "host all all 10.77.0.0/16 trust" >>"$TMPDIR/pg/data/pg_hba.conf"
	echo "fsync = off" >>"$TMPDIR/pg/data/postgresql.conf"
}
transacts() { # KIND: simple and prepared transactions, a few clients side by side
	set -- "$1" timeout "$(slow 120)" pgbench -h 10.77.0.2 -p 9012 -U postgres
	run a "$@" -q -i -s 1 postgres >"$TMPDIR/pgbench" 2>&1 &&
		run a "$@" -n -c 4 -j 2 -t 25 postgres >>"$TMPDIR/pgbench" 2>&1 &&
		run a "$@" -n -c 4 -j 2 -t 50 -S -M prepared postgres >>"$TMPDIR/pgbench" 2>&1 &&
		[ "$(grep -c 'number of failed transactions: 0 ' "$TMPDIR/pgbench")" = 2 ] ||
		{
			cat "$TMPDIR/pgbench"
			return 1
		}
}

talks() { # KIND COMMAND...: a client that says ok
	talks_kind=$1
	shift
	[ "$(run a "$talks_kind" timeout "$(slow 120)" "$@")" = ok ]
}

ktap_plan 14
# Go's listeners ask for MPTCP.
ns b rsmc policy add allow mptcp "exe=*/echo-go"
for kind in smc plain; do
	c0=$(counted a client) s0=$(counted b server)
	serve $kind 9010 memcached -u nobody -l 10.77.0.2 -p 9010 -U 0
	serve $kind 9011 "$(command -v sshd)" -D -e -f "$TMPDIR/sshd_config"
	serve $kind 9012 setpriv --reuid=postgres --regid=postgres --clear-groups \
		"$PG/postgres" -D "$TMPDIR/pg/data" -h 10.77.0.2 -p 9012 -k "$TMPDIR/pg"
	serve $kind 9013 echo-go serve :9013
	serve $kind 9014 java -Xint -jar /rsmc/bin/echo.jar serve 9014
	check "memcached.$kind" run a $kind python3 "$TMPDIR/cached.py"
	check "scp.$kind" copies $kind
	check "postgresql.$kind" transacts $kind
	check "go.$kind" talks $kind echo-go talk 10.77.0.2:9013 8 300000
	check "java.$kind" talks $kind java -Xint -jar /rsmc/bin/echo.jar talk 10.77.0.2 9014 4 300000
	proof services $kind "$c0" "$s0" 27
	stop
	check "gone.$kind" wait_for 20 sh -c '! ip netns exec b ss -ltnH | grep -q :901'
done
ktap_exit
