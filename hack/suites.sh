#!/usr/bin/env bash
# suites.sh PACKAGE COMMAND...: runs a command of go test for the packages under test/. PACKAGE, the longest suite, waits
# most of the time, so it runs beside the others. Its output follows theirs.
set -u
longest=$1
shift
output=$(mktemp)
trap 'rm -f "$output"' EXIT
set -m # each command has a process group of its own, which gets the signals
"$@" "./$longest" >"$output" 2>&1 &
first=$!
"$@" $(go list ./test/... | grep -v "/$longest\$") &
second=$!
trap 'kill -INT -- "-$first" "-$second"; wait; cat "$output"; exit 130' INT TERM
wait "$second"
code=$?
echo "==> test $longest, which runs beside the others"
wait "$first" || code=$?
cat "$output"
exit "$code"
