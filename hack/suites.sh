#!/usr/bin/env bash
# suites.sh PACKAGES COMMAND...: runs a command of go test for the packages under test/. PACKAGES, separated by spaces, are
# long suites that wait most of the time. They run in their order, one at a time, beside the others, and their output follows.
set -u
beside=$1
shift
output=$(mktemp)
trap 'rm -f "$output"' EXIT
set -m # each command has a process group of its own, which gets the signals
# shellcheck disable=SC2086 # the packages are words
"$@" $(printf './%s ' $beside) >"$output" 2>&1 &
first=$!
# shellcheck disable=SC2046,SC2086
"$@" $(go list ./test/... | grep -v $(printf -- '-e /%s$ ' $beside)) &
second=$!
trap 'kill -INT -- "-$first" "-$second"; wait; cat "$output"; exit 130' INT TERM
wait "$second"
code=$?
echo "==> test $beside, which run beside the others"
wait "$first" || code=$?
cat "$output"
exit "$code"
