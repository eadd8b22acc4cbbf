#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# types.sh RUSTC RMETA OUT COMMAND...
# Makes the list that types.awk makes, where the headers come without the file that it reads: packages
# have the metadata of the crate `bindings` alone, so the compiler is asked. It lists the names; which
# of the types are complete shows when each one's field `_unused` is used, by the kind of error:
# E0616, it is private, for those of which nothing is known; E0609, there is none, for all others.
# COMMAND is the compiler with the options of a crate that uses the crate `kernel`.
set -eu
rustc=$1
rmeta=$2
out=$3
shift 3
export LC_ALL=C
trap 'rm -f "$out.names" "$out.rs" "$out.errors" "$out.incomplete" "$out.rmeta" "$out.new"' EXIT

fail() {
	echo "$1" >&2
	exit 1
}

# A tuple struct is followed by its constructor, and left out.
"$rustc" -Zls=items "$rmeta" | awk '
	/Ctor\(Struct/ { name = "" }
	name != "" { print name; name = "" }
	$1 == "Public" && ($2 == "Struct" || $2 == "Union") && $3 !~ /^__(Bindgen|Incomplete)/ { name = $3 }
	END { if (name != "") print name }' | sort -u >"$out.names"
[ -s "$out.names" ] || fail "$rmeta lists no types with $("$rustc" --version)"

awk '{ printf "fn f%d(x: &kernel::bindings::%s) { x._unused; }\n", NR, $1 }' \
	"$out.names" >"$out.rs"
env "$@" --crate-name=types --cap-lints=allow --error-format=short --emit=metadata="$out.rmeta" "$out.rs" \
	2>"$out.errors" || :
if grep -E 'error(\[|:)' "$out.errors" | grep -Ev 'E0609|E0616|aborting' | head -n 5 | grep . >&2 ||
	! grep -q E0609 "$out.errors"; then
	fail "$rmeta: cannot find out which types are complete"
fi
sed -En 's/.*E0616\]: field `_unused` of struct `([^`]*::)?([A-Za-z0-9_]*)`.*/\2/p' \
	"$out.errors" | sort -u >"$out.incomplete"
comm -23 "$out.names" "$out.incomplete" | paste -sd'|' >"$out.new"
mv "$out.new" "$out"
