# check.sh has the checks of image.sh, which sources it: of this machine, of the variables, and of the space. Each ends the
# script with a message that names the variable and the remedy.

# MiB that the build takes: the root file system and the initramfs, the disk, the image. Packages of PACKAGES are not included.
root_space=1000 disk_space=1300 image_space=1300
# MiB. The files of the image take 1,200, and the host needs some for container images and logs.
smallest_root=2048 largest_root=1048576

check_machine() {
	[ "$(id -u)" = 0 ] || fail "Only root can build an image" "run the same command with sudo"
	[ "$(dpkg --print-architecture 2>/dev/null)" = amd64 ] || fail "This machine is not Debian for amd64" "run this on Debian 12, or in a container of it"
	[ "$ID ${VERSION_CODENAME:-}" = "debian bookworm" ] || fail "This machine is not Debian 12 but ${PRETTY_NAME:-$ID}" "run this on Debian 12, or in a container of it"
}

check_variables() {
	local package
	[[ $root_size =~ ^[1-9][0-9]{0,6}$ ]] && ((root_size >= smallest_root && root_size <= largest_root)) ||
		fail "ROOT_SIZE=$root_size is not a number of MiB from $smallest_root to $largest_root" "leave ROOT_SIZE out for 3072, or set for example ROOT_SIZE=8192"
	[[ $kernel =~ ^linux-image-[a-z0-9][a-z0-9.+-]*$ ]] ||
		fail "KERNEL=$kernel is not the name of a kernel package of Debian, which starts with linux-image-" "leave KERNEL out for virtual machines, or set KERNEL=linux-image-amd64 for hardware"
	[ "${SELINUX:-1}" = 1 ] || fail "SELINUX=$SELINUX is not 1" "leave SELINUX out, or set SELINUX=1 for an image with Debian's policy"
	[ "$architecture${SELINUX:+-selinux}" != arm64-selinux ] || fail "SELINUX=1 is only for amd64, and KERNEL=$kernel is for $architecture" "leave SELINUX out"
	for package in $packages; do
		[[ $package =~ ^[a-z0-9][a-z0-9.+-]+(/[a-z0-9-]+)?$ ]] ||
			fail "PACKAGES: $package is not the name of a Debian package" "write names with spaces between them, for example PACKAGES=\"sudo firmware-bnx2x\""
		[[ $package != linux-image-* ]] || fail "PACKAGES: $package is a kernel, and an image has one" "set KERNEL=$package instead"
	done
}

# check_packages looks the packages up in the lists of the sources that install_debian uses.
check_packages() {
	local wanted known name package
	if [ -z "$(sources)" ]; then
		apt-get update -qq || fail "apt-get update failed" "correct the network, the proxy (Acquire::http::Proxy) or the sources of apt on this machine"
	fi
	[ -n "$(sources)" ] || fail "apt on this machine has no source of $ID's packages" "check /etc/apt/sources.list and /etc/apt/sources.list.d"
	# The lists have the packages for this machine, and for other architectures the kernels have the same names.
	wanted=$(printf '%s\n' "${kernel/arm64/amd64}" $packages | sed 's|/.*||')
	known=$(apt-get indextargets --format '$(ORIGIN) $(FILENAME)' 'Created-By: Packages' | sed -n "s/^${ID^}[^/]* //p" | while read -r name; do
		"${APT_HELPER:-/usr/lib/apt/apt-helper}" cat-file "$name"
	done | sed -n 's/^Package: //p' | grep -Fx "$wanted") || true
	for package in $wanted; do
		! grep -qFx -e "$package" <<<"$known" || continue
		[ "$package" != "${kernel/arm64/amd64}" ] || fail "KERNEL=$kernel: the apt sources of this machine have no such package" \
			"leave KERNEL out for virtual machines, set KERNEL=linux-image-amd64 for hardware, or see: apt-cache search --names-only '^linux-image-'"
		fail "PACKAGES: the apt sources of this machine have no package $package" \
			"correct its name, or add the component that has it to $(sources | paste -sd ' ') and run apt-get update (firmware and microcode: non-free-firmware)"
	done
}

# check_folders checks that the build can write to its folders, without creating them.
check_folders() {
	local folder remedy existing probe work=$((root_space + disk_space))
	[ ! -d "$image" ] || fail "$image is a folder" "set IMAGE to a file, or remove the folder"
	remedy="set OUT to a folder on a file system that root can write"
	for folder in "$(dirname "$image")" "$dir"; do
		existing=$(existing "$folder")
		probe=$(mktemp -p "$existing" .poolboot.XXXXXX 2>/dev/null) || fail "The folder $folder cannot be written: $existing is not a folder, or its file system is read-only" "$remedy"
		rm "$probe"
		remedy="use a checkout on a file system that root can write"
	done
	# A rerun writes nothing.
	[ ! -e "$dir/$image_step.recipe" ] || [ ! -e "$image" ] || return 0
	[ ! -e "$dir/$root_step.recipe" ] || work=$disk_space
	if [ "$(stat -c %d "$(existing "$dir")")" = "$(stat -c %d "$(existing "$(dirname "$image")")")" ]; then
		check_space "$dir" $((work + image_space))
	else
		check_space "$dir" $work
		check_space "$(dirname "$image")" $image_space
	fi
}

# existing PATH prints the path, or the nearest folder above it that exists.
existing() {
	local path=$1
	while [ ! -e "$path" ]; do path=$(dirname "$path"); done
	echo "$path"
}

# check_space FOLDER MIB checks for free space.
check_space() {
	local free remedy="free space there, or use a checkout on a larger file system"
	free=$(df --output=avail --block-size=1M "$(existing "$1")" | tail -n 1)
	[ "$1" != "$(dirname "$image")" ] || remedy="free space there, or set OUT to a folder on a larger file system"
	((free >= $2)) || fail "The file system of $1 has ${free//[!0-9]/} MiB of free space, and the build needs $2 MiB" "$remedy"
}

# check_fits FOLDER MIB REMEDY checks that files fit in a file system of this size: ext4 needs 7% and a journal.
check_fits() {
	local files
	files=$(du -sm "$1" | cut -f 1)
	((files * 107 / 100 + 16 <= $2)) || fail "The files of the image take $files MiB, and the partition $(basename "$1" | sed s/tree/root/) has $2 MiB" "$3"
}
