#!/usr/bin/env bash
# rootfs.sh build DIR: builds the root file system of the test hosts in DIR from Debian packages, unless DIR has it.
# rootfs.sh check DIR: fails with a message if the root file system in DIR is missing, outdated or damaged.
#
# DIR/root is the root file system. DIR/recipe is the hash of what it was built from. DIR/manifest lists its files, and is
# written last. The packages are those of the machine's own apt configuration.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mode=$1
dir=$(realpath -m "$2")

# recipe prints the hash of this folder, the distribution and the architecture.
recipe() {
	{
		. /etc/os-release
		echo "$ID ${VERSION_CODENAME:-} $(dpkg --print-architecture)"
		cd "$here"
		find . -type f ! -name '*.go' -exec sha256sum {} + | LC_ALL=C sort -k 2
		find . -type l -printf '%p %l\n' | LC_ALL=C sort
	} | sha256sum | cut -d ' ' -f 1
}

# manifest prints a line for each file. A file that was changed has another size or time.
manifest() {
	(cd "$1/root" && find . \( -type d -printf '%p %M %U %G\n' \) -o -printf '%p %M %U %G %s %T@ %l\n' | LC_ALL=C sort)
}

# problem prints why the root file system in a folder cannot be used, or nothing.
problem() {
	if [ ! -e "$1/root" ]; then
		echo "is missing"
	elif [ ! -s "$1/manifest" ] || [ ! -s "$1/recipe" ]; then
		echo "is incomplete"
	elif [ "$(recipe)" != "$(cat "$1/recipe")" ]; then
		echo "is outdated"
	elif changed=$(manifest "$1" | diff "$1/manifest" - | grep '^[<>]' | cut -d ' ' -f 2 | sort -u | head -n 3) && [ -n "$changed" ]; then
		echo "is damaged, for example" $changed
	fi
}

case $mode in
check)
	why=$(problem "$dir")
	[ -z "$why" ] && exit 0
	echo "The root file system of the test hosts in $dir $why. What to do: run make rootfs" >&2
	exit 1
	;;
build) ;;
*)
	echo "unknown mode $mode" >&2
	exit 2
	;;
esac

mkdir -p "$(dirname "$dir")"
exec 9>"$dir.lock"
flock 9
why=$(problem "$dir")
[ -z "$why" ] && exit 0
echo "==> build the root file system of the test hosts from Debian packages, because it $why (a minute or two)"
fail() {
	echo "$1. What to do: $2" >&2
	exit 1
}
[ "$(id -u)" = 0 ] || fail "Only root can build the root file system of the test hosts" "run the same command with sudo"
command -v apt-get >/dev/null || fail "This machine has no apt" "run this on Debian or Ubuntu, or in a container of one"
command -v mmdebstrap >/dev/null || {
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends mmdebstrap arch-test- >/dev/null
}
. /etc/os-release
# The files that name the machine's mirrors of its distribution. Without lists apt does not know them.
sources() {
	apt-get indextargets --format '$(ORIGIN) $(SOURCESENTRY)' 'Created-By: Packages' | sed -n "s/^${ID^} \(.*\):[0-9]*$/\1/p" | sort -u
}
[ -n "$(sources)" ] || apt-get update -qq
mapfile -t files < <(sources)
[ ${#files[@]} -gt 0 ] || fail "apt on this machine has no source of $ID's packages" "check /etc/apt/sources.list and /etc/apt/sources.list.d"

# Builds that were interrupted leave a folder. Their mounts are in a mount namespace of their own and end with them.
rm -rf "$dir".building.*
building=$(mktemp -d "$dir.building.XXXXXX")
trap 'rm -rf "$building"' EXIT
trap 'exit 130' INT TERM
chmod 755 "$building"
apt_proxy=()
while read -r setting; do apt_proxy+=(--aptopt="$setting"); done < <(apt-config dump | grep -E '^Acquire::(http|https)::Proxy')
unshare --mount --pid --fork --kill-child mmdebstrap --mode=root --variant=essential --format=directory \
	--include="$(paste -sd, "$here/packages")" "${apt_proxy[@]}" \
	--dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
	"$VERSION_CODENAME" "$building/root" "${files[@]}"

# The image of a host is the same on every machine, and knows neither its name nor its ID.
root=$building/root
rm -rf "$root"/etc/hostname "$root"/etc/resolv.conf "$root"/etc/ssh/ssh_host_* "$root"/var/lib/dbus/machine-id "$root"/etc/apt/sources.list*
rm -rf "$root"/etc/systemd/system/*.wants "$root"/etc/systemd/system/*.target "$root"/var/cache/debconf/* "$root"/var/log/*
while read -r unit; do rm -f "$root"/usr/lib/systemd/system/*.wants/"$unit"; done <"$here/without"
# No umask or owner of the checkout reaches the image.
tar -C "$here/files" --owner=0 --group=0 --mode='u=rwX,go=rX' -c . | tar -C "$root" -x --no-same-permissions --keep-directory-symlink -p
echo uninitialized >"$root/etc/machine-id"
mkdir -p "$root/boot" "$root/var/log/journal" "$root/opt/cni/bin" "$root/etc/kubernetes"

recipe >"$building/recipe"
manifest "$building" >"$building/manifest.new"
sync -f "$building"
mv "$building/manifest.new" "$building/manifest"
rm -rf "$dir"
mv "$building" "$dir"
