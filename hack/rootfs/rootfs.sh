#!/usr/bin/env bash
# rootfs.sh build DIR: builds the root file system of the test hosts in DIR from Debian packages, unless DIR has it.
# rootfs.sh check DIR: fails with a message if the root file system in DIR is missing, outdated or damaged.
#
# DIR/root is the root file system. DIR/recipe is the hash of what it was built from. DIR/manifest lists its files, and is
# written last. The packages are those of the machine's own apt configuration.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../debian.sh"
mode=$1
dir=$(realpath -m "$2")

# recipe prints the hash of this folder, of debian.sh, and of the names of the distribution and the architecture.
recipe() {
	{
		echo "$ID ${VERSION_CODENAME:-} $(dpkg --print-architecture)"
		cd "$here"
		find . -type f ! -name '*.go' -exec sha256sum {} + | LC_ALL=C sort -k 2
		find . -type l -printf '%p %l\n' | LC_ALL=C sort
		sha256sum <../debian.sh
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
[ "$(id -u)" = 0 ] || fail "Only root can build the root file system of the test hosts" "run the same command with sudo"
command -v apt-get >/dev/null || fail "This machine has no apt" "run this on Debian or Ubuntu, or in a container of one"
command -v mmdebstrap >/dev/null || {
	exec 8<"$here/../native-packages.sh"
	flock 8 # make installs other packages at the same time
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends mmdebstrap arch-test- >/dev/null
}
# Builds that were interrupted leave a folder.
rm -rf "$dir".building.*
building=$(mktemp -d "$dir.building.XXXXXX")
trap 'rm -rf "$building"' EXIT
trap 'exit 130' INT TERM
chmod 755 "$building"
install_debian "$building/root" $(cat "$here/packages")
root=$building/root
rm -rf "$root"/etc/systemd/system/*.target
finish_root "$root" "$here/files"
while read -r unit; do rm -f "$root"/usr/lib/systemd/system/*.wants/"$unit"; done <"$here/without"

recipe >"$building/recipe"
manifest "$building" >"$building/manifest.new"
sync -f "$building"
mv "$building/manifest.new" "$building/manifest"
rm -rf "$dir"
mv "$building" "$dir"
