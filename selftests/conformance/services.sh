#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Services that people run, and languages with network code of their own, over SMC-R by the sysctl tcp2smc alone;
# then they are TCP again: memcached, sshd with scp, PostgreSQL with pgbench, Go, Java. In one guest or two.
# --megabytes N: what scp copies there and back (16). --hole N: what it copies besides, to nowhere, of a file that is a
# hole.
. "$RSMC_SELFTESTS/conformance/common.sh"
MB=16
HOLE=
while [ $# -gt 0 ]; do
	case $1 in
	--megabytes) MB=$2 ;;
	--hole) HOLE=$2 ;;
	esac
	shift 2
done
PG=$(echo /usr/lib/postgresql/*/bin)
PATH=$PATH:$PG
need memcached sshd scp ssh-keygen initdb pgbench setpriv java echo-go python3 ss

chmod 755 "$TMPDIR"
trap served EXIT

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

# sshd, with keys of its own; a client in another guest fetches its.
mkdir -p /run/sshd
mkdir "$TMPDIR/keys"
if serves; then
	ssh-keygen -q -t ed25519 -N '' -f "$TMPDIR/host"
	ssh-keygen -q -t ed25519 -N '' -f "$TMPDIR/keys/user"
fi
if [ "$RSMC_TOPO" = pair ]; then
	serve plain 9019 busybox httpd -f -p 9019 -h "$TMPDIR/keys"
	barrier keys 120
	! asks || run a plain busybox wget -q -O "$TMPDIR/keys/user" http://10.77.0.2:9019/user
	barrier keys_known 120
	served
fi
chmod 600 "$TMPDIR/keys/user"
cat >"$TMPDIR/sshd_config" <<END
ListenAddress 10.77.0.2:9011
HostKey $TMPDIR/host
AuthorizedKeysFile $TMPDIR/keys/user.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
Subsystem sftp internal-sftp
END
head -c "${MB}000000" /dev/urandom >"$TMPDIR/big"
truncate -s "${HOLE:-0}M" "$TMPDIR/hole"
THERE=/tmp/rsmc-services-there
copies() { # KIND: there and back again
	rm -f "$TMPDIR/back"
	set -- "$1" scp -q -P 9011 -i "$TMPDIR/keys/user" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null
	run a "$@" "$TMPDIR/big" "10.77.0.2:$THERE" &&
		run a "$@" "10.77.0.2:$THERE" "$TMPDIR/back" && cmp "$TMPDIR/big" "$TMPDIR/back" || return 1
	[ -z "$HOLE" ] || run a "$@" "$TMPDIR/hole" 10.77.0.2:/dev/null
}

# PostgreSQL as its own user.
as_postgres() {
	setpriv --reuid=postgres --regid=postgres --clear-groups "$@"
}
mkdir "$TMPDIR/pg"
chown postgres "$TMPDIR/pg"
if serves; then
	as_postgres initdb -D "$TMPDIR/pg/data" -A trust -N --no-instructions >"$TMPDIR/initdb" 2>&1 || cat "$TMPDIR/initdb"
	echo "host all all 10.77.0.0/16 trust" >>"$TMPDIR/pg/data/pg_hba.conf"
	echo "fsync = off" >>"$TMPDIR/pg/data/postgresql.conf"
fi
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

ktap_plan "$(asks && echo 14 || echo 4)"
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
	barrier "serving.$kind" 240
	ask "memcached.$kind" run a $kind python3 "$TMPDIR/cached.py"
	ask "scp.$kind" copies $kind
	ask "postgresql.$kind" transacts $kind
	ask "go.$kind" talks $kind echo-go talk 10.77.0.2:9013 8 300000
	ask "java.$kind" talks $kind java -Xint -jar /rsmc/bin/echo.jar talk 10.77.0.2 9014 4 300000
	barrier "asked.$kind" 600
	proof services $kind "$c0" "$s0" 27
	served
	check "gone.$kind" wait_for 20 closed :901
done
rm -f $THERE
ns b rsmc policy flush
ktap_exit
