#!/usr/bin/env bash
# namespaces.sh fails with a message unless this machine can run hosts in namespaces.
set -eu
fail() {
	echo "$1. What to do: $2" >&2
	exit 1
}
[ "$(id -u)" = 0 ] || fail "only root can run hosts in namespaces" "run the same command as root, for example with sudo"
for program in ip:iproute2 nsenter:util-linux unshare:util-linux setpriv:util-linux; do
	command -v "${program%:*}" >/dev/null || fail "${program%:*}, which boots hosts in namespaces, is missing" "apt-get install ${program#*:}"
done
why=$(unshare --mount --uts --ipc --net --pid --cgroup --fork true 2>&1) ||
	fail "root can't create namespaces here ($why)" "use a virtual or physical machine, or a container with all privileges (--privileged)"
