# debian.sh has the functions of the scripts that build root file systems from Debian packages. They source it.

# fail MESSAGE REMEDY: ends the script.
fail() {
	echo "$1. What to do: $2" >&2
	exit 1
}

. /etc/os-release
# sources prints the files that name the machine's mirrors of its distribution. Without lists apt does not know them.
sources() {
	apt-get indextargets --format '$(ORIGIN) $(SOURCESENTRY)' 'Created-By: Packages' | sed -n "s/^${ID^}[^/]* \(\/.*\):[0-9]*$/\1/p" | sort -u
}

# The architecture of root file systems, the command before a command that runs programs of it, and mmdebstrap's variant.
architecture=$(dpkg --print-architecture 2>/dev/null || true) emulator=() variant=essential

# start_emulator prepares to run programs of arm64 on another machine, in QEMU. A machine with systemd or binfmt-support
# does. Otherwise QEMU is registered in a user namespace with the IDs of this machine, which ends with the script.
start_emulator() {
	[ "$architecture" != "$(dpkg --print-architecture)" ] && [ ! -e /proc/sys/fs/binfmt_misc/qemu-aarch64 ] || return 0
	local ids from to
	coproc emulation {
		exec unshare --user --mount bash -c 'echo && read -r && mount -t binfmt_misc none /tmp &&
			cat /usr/lib/binfmt.d/qemu-aarch64.conf >/tmp/register && echo && read -r'
	}
	from=${emulation[0]} to=${emulation[1]} emulator=(nsenter --user="/proc/$emulation_PID/ns/user")
	read -r <&"$from"
	for ids in uid gid; do echo 0 0 4294967295 >"/proc/$emulation_PID/${ids}_map"; done
	echo >&"$to"
	read -r <&"$from" || fail "The kernel of this machine cannot run programs of $architecture" \
		"use a machine with Linux 6.7 or later, or with systemd, and with the module binfmt_misc"
}

# install_debian ROOT PACKAGE...: installs packages and what they depend on in the new folder ROOT. The mounts of an
# interrupted installation are in a mount namespace of their own and end with it.
install_debian() {
	local root=$1 files proxy
	shift
	[ -n "$(sources)" ] || apt-get update -qq
	mapfile -t files < <(sources)
	[ ${#files[@]} -gt 0 ] || fail "apt on this machine has no source of $ID's packages" "check /etc/apt/sources.list and /etc/apt/sources.list.d"
	mapfile -t proxy < <(apt-config dump | grep -E '^Acquire::(http|https)::Proxy' | sed 's/^/--aptopt=/')
	"${emulator[@]}" unshare --mount --pid --fork --kill-child mmdebstrap --mode=root --variant="$variant" --format=directory \
		--architectures="$architecture" --skip=check/qemu \
		--include="$(IFS=,; echo "$*")" "${proxy[@]}" --dpkgopt=force-unsafe-io \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
		"$VERSION_CODENAME" "$root" "${files[@]}"
}

# finish_root ROOT FILES: adds the files of a folder. The result is the same on every machine, and has neither the name of
# a host nor its IDs and keys.
finish_root() {
	rm -rf "$1"/etc/{hostname,resolv.conf} "$1"/etc/ssh/ssh_host_* "$1"/var/lib/dbus/machine-id "$1"/etc/apt/sources.list*
	rm -rf "$1"/etc/systemd/system/*.wants "$1"/var/cache/debconf/* "$1"/var/log/*
	# No umask or owner of the checkout reaches it.
	tar -C "$2" --owner=0 --group=0 --mode='u=rwX,go=rX' -c . | tar -C "$1" -x --no-same-permissions --keep-directory-symlink -p
	rm -f "$1/etc/machine-id" # a hard link in the tree of an image
	echo uninitialized >"$1/etc/machine-id"
	mkdir -p "$1/boot" "$1/var/log/journal" "$1/opt/cni/bin" "$1"/etc/{cni/net.d,kubernetes}
}
