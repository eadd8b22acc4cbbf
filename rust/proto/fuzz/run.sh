#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Fuzzes smc_proto with libFuzzer: fuzz/run.sh [SECONDS [TARGET...]]
#
# Runs each target (default: all) for SECONDS (default 60; 0 replays the corpus
# only) and prints a KTAP line for each, and the number of executions.
# Needs a Rust compiler, stable will do, and a C++ compiler. No cargo-fuzz, no
# nightly: coverage comes from LLVM's own pass, and there is no sanitizer since
# the crate has no unsafe code.
#
# What a run finds is written to work/, the committed corpus stays as it is.
# CORPUS_UPDATE=1 merges what adds coverage into the corpus.

set -eu
cd "$(dirname "$0")"
seconds=${1:-60}
[ $# -eq 0 ] || shift

if ! command -v "${CXX:-c++}" >/dev/null; then
	echo "KTAP version 1"
	echo "1..0 # SKIP no C++ compiler (libFuzzer is built from source)"
	exit 0
fi

host=$(rustc -vV | sed -n 's/^host: //p')
target_dir=${CARGO_TARGET_DIR:-target}
sancov="-Cpasses=sancov-module"
for option in level=4 inline-8bit-counters pc-table trace-compares; do
	sancov="$sancov -Cllvm-args=-sanitizer-coverage-$option"
done
RUSTFLAGS="--cfg fuzzing $sancov -Ccodegen-units=1 ${RUSTFLAGS:-}"
export RUSTFLAGS
cargo build --quiet --locked --release --target "$host" >&2

if [ $# -eq 0 ]; then
	set -- fuzz_targets/*.rs
fi
echo "KTAP version 1"
echo "1..$#"
n=0
failed=0
for target; do
	name=$(basename "$target" .rs)
	n=$((n + 1))
	mkdir -p "work/$name" "artifacts/$name" "corpus/$name"
	if [ "$seconds" -eq 0 ]; then
		limit=-runs=0
	else
		limit=-max_total_time=$seconds
	fi
	program=$target_dir/$host/release/$name
	log=work/$name.log
	if "$program" "$limit" -max_len=1024 -timeout=10 -rss_limit_mb=1024 -verbosity=1 \
		-print_final_stats=1 "-artifact_prefix=artifacts/$name/" \
		"work/$name" "corpus/$name" >"$log" 2>&1; then
		executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
		echo "# $name: $executions executions in $seconds s"
		echo "ok $n - fuzz $name"
		if [ -n "${CORPUS_UPDATE:-}" ]; then
			"$program" -set_cover_merge=1 -max_len=1024 "corpus/$name" "work/$name" >>"$log" 2>&1
		fi
	else
		failed=1
		tail -n 25 "$log" | sed 's/^/# /'
		echo "not ok $n - fuzz $name"
	fi
done
exit $failed
