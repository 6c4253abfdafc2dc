#!/usr/bin/env bash
# progress.sh WHAT REMEDY COMMAND...: runs a command without its output, prints a line every ten seconds while it runs, and
# on failure prints the end of its output and what to do, unless a signal ended it. When make gets SIGINT or SIGTERM, the
# command gets SIGTERM.
set -u
what=$1 remedy=$2
shift 2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
start=$SECONDS
echo "==> $what"
"$@" >"$log" 2>&1 &
pid=$!
trap 'kill "$pid" 2>/dev/null' INT TERM
# make forwards SIGTERM, but not SIGINT, because a SIGINT from a terminal reaches the whole process group. make removes its
# handler for SIGINT when it gets one.
make_catches_int() {
	local key value
	while read -r key value; do
		[[ $key == SigCgt: ]] && return $((!(0x$value & 2)))
	done <"/proc/$PPID/status" 2>/dev/null
	return 0
}
make_catches_int && watched=1 || watched=
next=10
while kill -0 "$pid" 2>/dev/null; do
	sleep 0.2
	if [ -n "$watched" ] && ! make_catches_int; then
		kill "$pid" 2>/dev/null
		watched= # only once: a second signal would end the cleanup of the command
	fi
	if ((SECONDS - start >= next)); then
		echo "    $what: still at it after $((SECONDS - start)) s"
		next=$((next + 10))
	fi
done
wait "$pid"
code=$?
if ((code != 0)); then
	tail -n 60 "$log"
	((code <= 128 || code > 192)) || remedy="signal $((code - 128)) ended it: run the same command again"
	echo "==> $what: FAILED after $((SECONDS - start)) s. What to do: $remedy" >&2
fi
exit "$code"
