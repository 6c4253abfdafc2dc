#!/usr/bin/env bash
# suites.sh N PACKAGES COMMAND...: runs a command of go test for each package under test/, N of them at a time. PACKAGES,
# separated by spaces, are those that take longest, and run first. The output of each follows when it has ended.
set -u
at_once=$1
longest=$2
shift 2
outputs=$(mktemp -d)
trap 'rm -rf "$outputs"' EXIT
set -m # each command has a process group of its own, which gets the signals
declare -A running=()
code=0
finish() { # finish PID CODE: print the output of a command that has ended
	echo "==> ${running[$1]}"
	cat "$outputs/$1"
	rm "$outputs/$1"
	unset "running[$1]"
	(($2 == 0)) || code=$2
}
await() { # wait for one of the commands
	local ended status
	wait -n -p ended "${!running[@]}"
	status=$?
	finish "$ended" "$status"
}
interrupt() {
	for pid in "${!running[@]}"; do kill -INT -- "-$pid"; done
	wait
	for pid in "${!running[@]}"; do finish "$pid" 130; done
	exit 130
}
trap interrupt INT TERM
module=$(go list -m)
# shellcheck disable=SC2046,SC2086
for package in $longest $(go list ./test/... | sed "s|^$module/||" | grep -vx $(printf -- '-e %s ' $longest)); do
	((${#running[@]} < at_once)) || await
	(
		exec >"$outputs/$BASHPID" 2>&1
		exec "$@" "./$package"
	) &
	running[$!]=$package
	echo "==> begin $package"
done
while ((${#running[@]} > 0)); do await; done
exit "$code"
