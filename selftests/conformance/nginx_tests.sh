#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# nginx's own tests, plainly and with SMC sockets (server, its upstreams and the tests themselves); what ends differently
# has to be in nginx-exclude.csv. Arguments: --convert --local, and patterns of files, for instance 'proxy_k*'.
. "$RSMC_SELFTESTS/conformance/suite.sh"
need nginx perl
FILES=/rsmc/suites/nginx
[ -f $FILES/lib/Test/Nginx.pm ] || skip_all "no tests of nginx here: RSMC_NGINX_TESTS names a checkout of them"
# They would have nginx load each module that it could, of which none are here.
cat >"$TMPDIR/nginx" <<'END'
#!/bin/sh
[ "$*" = -V ] || exec /usr/sbin/nginx "$@"
/usr/sbin/nginx -V 2>&1 | sed 's/ --with-[a-z_]*=dynamic//g'
END
chmod 755 "$TMPDIR/nginx"
# Their files are root's alone.
export TEST_NGINX_BINARY="$TMPDIR/nginx" TEST_NGINX_GLOBALS="user root;"

# one KIND OUT IDS-OR-FILES...: an id is a file, a colon, the number of a test, and its name.
one() {
	one_kind=$1
	one_out=$2
	shift 2
	: >"$one_out"
	: >"$one_out.noise"
	for file in $(parents "$@"); do
		run a "$one_kind" timeout "$(slow 60)" perl "$file.t" >"$one_out.file" 2>&1
		cat "$one_out.file" >>"$one_out.noise"
		awk -v file="$file" -v OFS='\t' '
			/^1\.\.0/ { print file ":all", "skip" }
			/^(not )?ok [0-9]+/ {
				how = /^not/ ? "fail" : "ok"
				sub(/^(not )?ok /, "")
				if (/# (skip|TODO)/) how = "skip"
				sub(/ *# (skip|TODO).*/, "")
				gsub(/[^A-Za-z0-9]+/, "_")
				print file ":" $0, how
			}' "$one_out.file" >>"$one_out"
		grep -qE '^1\.\.[0-9]+' "$one_out.file" || printf '%s:plan\tfail\n' "$file" >>"$one_out"
	done
	printf 'end\treached\n' >>"$one_out"
}

# They are where they write to.
cd "$TMPDIR" || exit 1
cp -r $FILES tests
chmod 755 . tests
cd tests || exit 1
# shellcheck disable=SC2046,SC2086
set -- $(for pattern; do ls $pattern.t; done | sed 's/\.t$//' | sort -u)
echo "KTAP version 1"
suite nginx nginx-exclude.csv "$@"
ktap_exit
