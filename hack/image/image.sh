#!/usr/bin/env bash
# image.sh check: fails with a message if this machine cannot build an image.
# image.sh build DIR IMAGE: builds a Debian image for bare-metal hosts, and its SHA-256 checksum in IMAGE.sha256sum.
#
# It builds in steps: the root file system, the initramfs, the image. The results of the steps are in DIR, and a step
# is repeated when its inputs change. The programs that are not in Debian are those of the folder PROGRAMS.
# KERNEL is the Debian package of the kernel. Default: linux-image-cloud-amd64, which has drivers for virtual machines only.
# IGNITION is the folder of hack/tools, and the program, of the release of Ignition in the image. Default: ignition.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mode=$1
programs=${PROGRAMS:-$here/../../bin}
kernel=${KERNEL:-linux-image-cloud-amd64}
ignition=${IGNITION:-ignition}
# MiB. The disk of a host is larger, and Ignition partitions the rest.
root_size=${ROOT_SIZE:-3072} boot_size=256

. "$here/../debian.sh"
[ "$(id -u)" = 0 ] || fail "Only root can build an image" "run the same command with sudo"
[ "$(dpkg --print-architecture 2>/dev/null)" = amd64 ] || fail "This machine is not Debian for amd64" "run this on Debian 12, or in a container of it"
case $mode in
check) exit ;;
build) ;;
*) fail "Unknown mode $mode" "read the first lines of hack/image/image.sh" ;;
esac
for program in mmdebstrap:mmdebstrap qemu-img:qemu-utils sfdisk:fdisk mke2fs:e2fsprogs; do
	command -v "${program%:*}" >/dev/null || fail "This machine has no ${program%:*}" "apt-get install ${program#*:}"
done
dir=$(realpath -m "$2")
image=$(realpath -m "$3")
programs=$(realpath "$programs")
[ ! -e "$dir" ] || [ -e "$dir/lock" ] || [ -z "$(ls -A "$dir")" ] || fail "$dir has files of others, and the build deletes folders in it" "name an empty folder"
mkdir -p "$dir" "$(dirname "$image")"
exec 9>"$dir/lock"
flock 9

# is_built STEP INPUT...: whether a step was built from these inputs. It sets $recipe to their hash.
is_built() {
	local step=$1
	shift
	recipe=$({ echo "$step"; for input; do
		if [ -d "$input" ]; then
			(cd "$input" && find . -type f -exec sha256sum {} + | LC_ALL=C sort -k 2; find . -printf '%p %m %l\n' | LC_ALL=C sort)
		elif [ -f "$input" ]; then sha256sum <"$input"; else echo "$input"; fi
	done; } | sha256sum | cut -d ' ' -f 1)
	[ "$recipe" = "$(cut -d ' ' -f 1 "$dir/$step.recipe" 2>/dev/null)" ]
}
# step STEP: announces a step. Its last result is no longer valid.
step() {
	rm -f "$dir/$1.recipe"
	echo "==> $1 ($SECONDS s)"
}
# built STEP: the time makes all later steps outdated.
built() { echo "$recipe $(date +%s.%N)" >"$dir/$1.recipe"; }

root=$dir/root
if ! is_built root "$ID $VERSION_CODENAME $kernel" "$here/packages" "$here/../debian.sh" "$(sed -n '/^root=/,/\tbuilt root/p' "$here/image.sh")"; then
	step root
	rm -rf "$root"
	# The initramfs is a step of its own.
	INITRD=No install_debian "$root" $(cat "$here/packages") "$kernel"
	built root
fi

modules=$root/usr/lib/dracut/modules.d initramfs=initramfs-$ignition
go -C "$here/../tools/$ignition" mod download github.com/coreos/ignition/v2
ignition_module=$(go -C "$here/../tools/$ignition" list -m -f '{{.Dir}}' github.com/coreos/ignition/v2)
if ! is_built "$initramfs" "$(cat "$dir/root.recipe")" "$here/dracut" "$ignition_module/dracut" "$programs/$ignition" "$(sed -n '/^modules=/,/\tbuilt .*initramfs/p' "$here/image.sh")"; then
	step "$initramfs"
	version=$(ls "$root/lib/modules")
	rm -rf "$modules/30ignition" "$modules"/31poolboot-*
	cp -r "$ignition_module/dracut/30ignition" "$modules/30ignition"
	cp -r "$here"/dracut/31poolboot-* "$modules/"
	# Files of Go modules have no execute permission.
	chmod -R u=rwX,go=rX "$modules/30ignition" "$modules"/31poolboot-*
	chmod +x "$modules/30ignition"/*.sh "$modules/30ignition/ignition-generator" "$modules"/31poolboot-*/*.sh
	install -m 755 "$programs/$ignition" "$modules/30ignition/ignition"
	add="poolboot-network poolboot-grub poolboot-report poolboot-repeat"
	grep -q partx "$modules/30ignition/module-setup.sh" || add+=" poolboot-partitions"
	unshare --mount --pid --fork --kill-child bash -c '
		mount -t proc proc "$1/proc" && mount -t sysfs -o ro sysfs "$1/sys" && mount --bind /dev "$1/dev" && mount -t tmpfs tmpfs "$1/run" &&
		exec chroot "$1" dracut --force --no-hostonly --no-hostonly-cmdline --no-early-microcode --reproducible \
			--add "$3" --omit "network-legacy network-manager plymouth" \
			--compress "zstd -3 -T0 -q" --kver "$2" /boot/initramfs' - "$root" "$version" "$add"
	mv "$root/boot/initramfs" "$dir/$initramfs"
	built "$initramfs"
fi

step=image-$ignition
if ! is_built "$step" "$(cat "$dir/$initramfs.recipe")" "$here/files" "$here/grub" "$programs"/{kubelet,kubeadm,pause.tar,containerd,cni} "$root_size" "path $image" \
	"$(sed -n '/^step=/,$p' "$here/image.sh")" || ! (cd "$(dirname "$image")" && sha256sum --quiet --check "$(basename "$image").sha256sum" >/dev/null 2>&1); then
	step "$step"
	disk=$dir/disk.raw
	rm -rf "$dir/tree" "$dir/boot" "$disk"
	cp -al "$root" "$dir/tree"
	tree=$dir/tree
	finish_root "$tree" "$here/files"
	rm -rf "$tree"/usr/lib/dracut/modules.d/{30ignition,31poolboot-*} "$tree"/dev/*
	ln -s /run/systemd/resolve/resolv.conf "$tree/etc/resolv.conf"
	# It asks on the console.
	ln -s /dev/null "$tree/etc/systemd/system/systemd-firstboot.service"
	mkdir -p "$tree/usr/share/containerd"
	install -m 755 "$programs"/{kubelet,kubeadm} "$programs"/containerd/* "$tree/usr/bin/"
	install -m 755 "$programs"/cni/* "$tree/opt/cni/bin/"
	install -m 644 "$programs/pause.tar" "$tree/usr/share/containerd/pause.tar"
	mv "$tree/boot" "$dir/boot"
	mkdir -m 755 "$tree/boot" "$dir/boot/grub"
	mv "$dir"/boot/vmlinuz-* "$dir/boot/vmlinuz"
	rm -f "$dir"/boot/System.map-*
	cp "$dir/$initramfs" "$dir/boot/initramfs"
	install -m 644 "$here/grub/grub.cfg" "$dir/boot/grub/"
	install -m 644 "$here/grub/kernel-arguments.cfg" "$dir/boot/"
	: >"$dir/boot/ignition.firstboot"

	# Partitions: GRUB, boot, root. Sectors have 512 bytes.
	boot_start=4096 root_start=$((4096 + boot_size * 2048))
	truncate -s $((root_start / 2048 + root_size + 1))M "$disk"
	sfdisk --quiet "$disk" <<-END
		label: gpt
		start=2048, size=2048, type=21686148-6449-6E6F-744E-656564454649, name=bios
		start=$boot_start, size=$((boot_size * 2048)), type=L, name=boot
		start=$root_start, size=$((root_size * 2048)), type=L, name=root
	END
	mke2fs -q -t ext4 -L boot -E offset=$((boot_start * 512)),root_owner=0:0 -d "$dir/boot" "$disk" ${boot_size}M
	mke2fs -q -t ext4 -L root -E offset=$((root_start * 512)),root_owner=0:0 -d "$tree" "$disk" ${root_size}M
	# What grub-install writes, which needs device nodes of partitions: the boot sector with the number of the first sector of
	# the core image, and in that sector the number of the second one.
	cp "$here/grub/core.cfg" "$root/tmp/core.cfg"
	chroot "$root" grub-mkimage -O i386-pc -o /tmp/core.img -p /grub -c /tmp/core.cfg \
		biosdisk part_gpt ext2 search search_label normal configfile linux echo test serial terminal sleep reboot ls cat
	mv "$root/tmp/core.img" "$dir/core.img"
	rm "$root/tmp/core.cfg"
	head -c 440 "$root/usr/lib/grub/i386-pc/boot.img" | dd of="$disk" conv=notrunc status=none
	# On hard disks grub-install also replaces the jump that trusts the drive number of the firmware.
	printf '\x90\x90' | dd of="$disk" bs=1 seek=$((0x66)) conv=notrunc status=none
	printf '\x00\x08\x00\x00\x00\x00\x00\x00' | dd of="$disk" bs=1 seek=$((0x5c)) conv=notrunc status=none # 2048
	dd if="$dir/core.img" of="$disk" bs=512 seek=2048 conv=notrunc status=none
	printf '\x01\x08\x00\x00\x00\x00\x00\x00' | dd of="$disk" bs=1 seek=$((2048 * 512 + 0x1f4)) conv=notrunc status=none # 2049
	qemu-img convert -f raw -O qcow2 "$disk" "$image.new"
	rm -rf "$dir/tree" "$dir/boot" "$dir/core.img" "$disk"
	sync "$image.new"
	mv "$image.new" "$image"
	(cd "$(dirname "$image")" && sha256sum "$(basename "$image")" >"$(basename "$image").sha256sum")
	built "$step"
fi
