#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# The module as a whole: aliases, rows in /proc/net/protocols, automatic loading, refused unload,
# 100 reloads. Loads and unloads the module; leaves it loaded.
. "$RSMC_SELFTESTS/lib.sh"

ROUNDS=${1:-100}
PATH=/usr/sbin:/sbin:$PATH

loaded() { grep -q '^rsmc ' /proc/modules; }
has_alias() { modinfo -F alias "$RSMC_KO" | grep -qx "$1"; }
has_row() { awk -v n="$1" '$1 == n { f = 1 } END { exit !f }' /proc/net/protocols; }
unload() { wait_for 5 rmmod rsmc; }

ktap_plan 21

for a in net-pf-43 net-pf-2-proto-256-type-1 net-pf-10-proto-256-type-1; do
	check "alias.$a" has_alias "$a"
done
is license "$(modinfo -F license "$RSMC_KO")" GPL
for r in SMC SMC6 INET_SMC INET6_SMC; do
	check "row.$r" has_row "$r"
done

# An open socket, of each kind, keeps the module.
for f in smc inet; do
	mkfifo "$TMPDIR/$f"
	family hold $f <"$TMPDIR/$f" >"$TMPDIR/$f.out" &
	pid=$!
	exec 9>"$TMPDIR/$f"
	wait_for 5 grep -q holding "$TMPDIR/$f.out"
	check_fails "unload_refused.$f" rmmod rsmc
	check "still_loaded.$f" loaded
	exec 9>&-
	wait $pid
done

check unloads unload
check_fails gone.module loaded
check_fails gone.rows has_row SMC
check_fails gone.proc test -e /proc/net/smc_fallback
is gone.socket "$(echo /bin/false >/proc/sys/kernel/modprobe; family probe smc)" EAFNOSUPPORT

# The kernel asks for the module by an alias of it: answer it as modprobe would.
cat >"$TMPDIR/modprobe" <<END
#!/bin/sh
for w; do a=\$w; done
echo "\$a" >>$TMPDIR/asked
/usr/sbin/modinfo -F alias $RSMC_KO | grep -qx "\$a" && exec /usr/sbin/insmod $RSMC_KO
exit 1
END
chmod 755 "$TMPDIR/modprobe"
old=/sbin/modprobe
echo "$TMPDIR/modprobe" >/proc/sys/kernel/modprobe
is autoload.smc "$(family probe smc)" ok
unload
is autoload.inet "$(family probe inet)" ok
echo $old >/proc/sys/kernel/modprobe
sed 's/^/# asked for /' "$TMPDIR/asked"

reload() {
	i=0
	while [ $i -lt "$ROUNDS" ]; do
		unload || return 1
		load_module || return 1
		case $((i % 10)) in
		0) transfer --family inet,smc --ip v4 --mb 1 random_sizes || return 1 ;;
		5) [ "$(family probe smc)" = ok ] || return 1 ;;
		esac
		i=$((i + 1))
	done
}
loaded || insmod "$RSMC_KO"
check "reload_$ROUNDS" reload
check works_after family
ktap_exit
