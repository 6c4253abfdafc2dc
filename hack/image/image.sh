#!/usr/bin/env bash
# image.sh check DIR IMAGE: fails with a message if this machine cannot build an image, or a variable has a wrong value.
# image.sh build DIR IMAGE: builds a Debian image for bare-metal hosts, and its SHA-256 checksum in IMAGE.sha256sum.
#
# It builds in steps: the root file system, the initramfs, the image. The results of the steps are in DIR, and a step
# is repeated when its inputs change. Without a change, nothing is written. Images with other kernels have steps of their own.
# The programs that are not in Debian are those of the folder PROGRAMS.
# KERNEL is the Debian package of the kernel, and of the architecture of the image. Default: linux-image-cloud-amd64, which has
# drivers for virtual machines only.
# PACKAGES are more Debian packages for the image, with spaces between them, as NAME or NAME/SUITE.
# ROOT_SIZE is the size of the root partition in MiB.
# IGNITION is the folder of hack/tools, and the program, of the release of Ignition in the image. Default: ignition.
# SELINUX=1 adds Debian's policy of SELinux, labels all files, and takes the program that labels what it writes, $IGNITION-selinux.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mode=$1
programs=${PROGRAMS:-$here/../../bin}
kernel=${KERNEL:-linux-image-cloud-amd64}
packages=$(tr -s '[:space:]' '\n' <<<"${PACKAGES:-} ${SELINUX:+selinux-policy-default}" | sed '/^$/d' | LC_ALL=C sort -u)
ignition=${IGNITION:-ignition}
selinux=${SELINUX:+-selinux}
# MiB. The disk of a host is larger, and Ignition partitions the rest.
root_size=${ROOT_SIZE:-3072} boot_size=256 esp_size=64

. "$here/../debian.sh"
case $kernel in
*-arm64*) architecture=arm64 efi=aa64 grub=arm64 boot_packages=grub-efi-arm64-signed serial=ttyAMA0 ;;
*) architecture=amd64 efi=x64 grub=x86_64 boot_packages="grub-efi-amd64-signed grub-pc-bin" serial=ttyS0 ;;
esac
. "$here/updates.sh"
. "$here/check.sh"
dir=$(realpath -m "$2")
image=$(realpath -m "$3")
# The steps of each kernel, so that images for virtual machines and for hardware do not replace each other's.
root_step=root-$kernel$selinux initramfs_step=initramfs-$kernel-$ignition$selinux image_step=image-$kernel-$ignition$selinux
case $mode in
check)
	check_variables
	check_machine
	check_packages
	check_folders
	exit
	;;
build) ;;
steps) ;; # of build
*) fail "Unknown mode $mode" "read the first lines of hack/image/image.sh" ;;
esac

# The steps are a process group, which ends as a whole when the build is interrupted: unshare ignores SIGTERM.
if [ "$mode" = build ]; then
	check_variables
	check_machine
	group=
	interrupted() {
		trap '' INT TERM
		exec 3>&2 2>/dev/null # bash says what was killed
		[ -z "$group" ] || kill -KILL -- "-$group" || true
		wait || true
		rm -f "$image.new"
		echo "The build was interrupted. $image is as it was before. $dir keeps the finished steps: the same command continues with the step that was interrupted." >&3
		exit "$1"
	}
	trap 'interrupted 130' INT
	trap 'interrupted 143' TERM
	set -m
	"$here/image.sh" steps "$dir" "$image" </dev/null &
	group=$!
	set +m
	wait "$group"
	exit
fi

for program in mmdebstrap:mmdebstrap qemu-img:qemu-utils sfdisk:fdisk mke2fs:e2fsprogs mcopy:mtools; do
	command -v "${program%:*}" >/dev/null || fail "This machine has no ${program%:*}" "apt-get install ${program#*:}"
done
programs=$(realpath "$programs")
[ ! -e "$dir" ] || [ -e "$dir/lock" ] || [ -z "$(ls -A "$dir")" ] || fail "$dir has files of others, and the build deletes folders in it" "name an empty folder"
mkdir -p "$dir" "$(dirname "$image")"
exec 9>"$dir/lock"
flock --nonblock 9 || {
	echo "==> wait for another build in $dir"
	flock 9
}
start_emulator

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

root=$dir/$root_step
if ! is_built "$root_step" "$ID $VERSION_CODENAME $kernel" "packages $boot_packages $packages" "$here/packages" "$here/../debian.sh" "$(sed -n '/^root=/,/\tbuilt .*root/p' "$here/image.sh")"; then
	step "$root_step"
	check_space "$dir" "$root_space"
	rm -rf "$root"
	# The initramfs is a step of its own.
	INITRD=No install_debian "$root" $(cat "$here/packages") $boot_packages $packages "$kernel"
	# Services mount what they need below /run, such as the config drive.
	[ -z "$selinux" ] || chroot "$root" setsebool -P -N allow_mount_anyfile on
	built "$root_step"
fi

modules=$root/usr/lib/dracut/modules.d initramfs=$initramfs_step
go -C "$here/../tools/$ignition" mod download github.com/coreos/ignition/v2
ignition_module=$(go -C "$here/../tools/$ignition" list -m -f '{{.Dir}}' github.com/coreos/ignition/v2)
if ! is_built "$initramfs" "$(cat "$dir/$root_step.recipe")" "$here/dracut" "$ignition_module/dracut" "$programs/$ignition$selinux" "$programs/network-data" "$(sed -n '/^modules=/,/\tbuilt .*initramfs/p' "$here/image.sh")"; then
	step "$initramfs"
	version=$(ls "$root/lib/modules")
	rm -rf "$modules/30ignition" "$modules"/31poolboot-*
	cp -r "$ignition_module/dracut/30ignition" "$modules/30ignition"
	cp -r "$here"/dracut/31poolboot-* "$modules/"
	# Debian's kernels lack modules of some servers for arm64.
	sed -i 's/instmods -c /instmods /' "$modules/30ignition/module-setup.sh"
	# Files of Go modules have no execute permission.
	chmod -R u=rwX,go=rX "$modules/30ignition" "$modules"/31poolboot-*
	chmod +x "$modules/30ignition"/*.sh "$modules/30ignition/ignition-generator" "$modules"/31poolboot-*/*.sh
	install -m 755 "$programs/$ignition$selinux" "$modules/30ignition/ignition"
	install -m 755 "$programs/network-data" "$modules/31poolboot-network/"
	add="poolboot-network poolboot-grub poolboot-report poolboot-repeat"
	grep -q partx "$modules/30ignition/module-setup.sh" || add+=" poolboot-partitions"
	"${emulator[@]}" unshare --mount --pid --fork --kill-child bash -c '
		mount -t proc proc "$1/proc" && mount --rbind /sys "$1/sys" && mount -o remount,bind,ro "$1/sys" && mount --rbind /dev "$1/dev" && mount -t tmpfs tmpfs "$1/run" &&
		exec chroot "$1" dracut --force --no-hostonly --no-hostonly-cmdline --early-microcode --reproducible \
			--add "$3" --omit "network-legacy network-manager plymouth" \
			--compress "zstd -3 -T0 -q" --kver "$2" /boot/initramfs' - "$root" "$version" "$add"
	mv "$root/boot/initramfs" "$dir/$initramfs"
	built "$initramfs"
fi

step=$image_step
# Another build can have replaced the image and its checksum.
if ! is_built "$step" "$(cat "$dir/$initramfs.recipe")" "$here/files" "$here/grub" "$here/updates.sh" "$here"/dracut/31poolboot-{grub,network} "$programs"/{kubelet,kubeadm,pause.tar,containerd,cni,network-data} "$root_size" "path $image" \
	"$(sed -n '/^step=/,$p' "$here/image.sh")" || ! cmp -s "$image.sha256sum" "$dir/$step.sha256sum" ||
	! (cd "$(dirname "$image")" && sha256sum --quiet --check "$(basename "$image").sha256sum" >/dev/null 2>&1); then
	step "$step"
	check_space "$dir" "$disk_space"
	check_space "$(dirname "$image")" "$image_space"
	disk=$dir/disk.raw
	rm -rf "$dir/tree" "$dir/boot" "$disk"
	cp -al "$root" "$dir/tree"
	tree=$dir/tree
	finish_root "$tree" "$here/files"
	rm -rf "$tree"/usr/lib/dracut/modules.d/{30ignition,31poolboot-*} "$tree"/dev/*
	ln -s /run/systemd/resolve/resolv.conf "$tree/etc/resolv.conf"
	# It asks on the console.
	ln -s /dev/null "$tree/etc/systemd/system/systemd-firstboot.service"
	mkdir -p "$tree/usr/share/containerd" "$tree/usr/libexec/poolboot"
	install -m 755 "$programs/network-data" "$tree/usr/libexec/poolboot/"
	install -m 644 "$here/dracut/31poolboot-network/network-data.service" "$tree/usr/lib/systemd/system/"
	install -m 755 "$programs"/{kubelet,kubeadm} "$programs"/containerd/* "$tree/usr/bin/"
	install -m 755 "$programs"/cni/* "$tree/opt/cni/bin/"
	install -m 644 "$programs/pause.tar" "$tree/usr/share/containerd/pause.tar"
	prepare_updates "$tree" "$here"
	mv "$tree/boot" "$dir/boot"
	mkdir -m 755 "$tree/boot" "$dir/boot/grub"
	mv "$dir"/boot/vmlinuz-* "$dir/boot/vmlinuz"
	rm -f "$dir"/boot/System.map-*
	cp "$dir/$initramfs" "$dir/boot/initramfs"
	install -m 644 "$here/grub/grub.cfg" "$dir/boot/grub/"
	install -m 644 "$here/grub/kernel-arguments.cfg" "$dir/boot/"
	: >"$dir/boot/ignition.firstboot"
	sed -i "s/ttyS0/$serial/" "$dir/boot/kernel-arguments.cfg" "$tree/usr/lib/kernel/cmdline"
	if [ -n "$selinux" ]; then
		sed -i "s/'$/ security=selinux'/" "$dir/boot/kernel-arguments.cfg"
		sed -i 's/$/ security=selinux/' "$tree/usr/lib/kernel/cmdline"
		contexts=$tree/etc/selinux/default/contexts/files/file_contexts
		"$tree/sbin/setfiles" -F -r "$tree" "$contexts" "$tree"
		"$tree/sbin/setfiles" -F -r "$dir" "$contexts" "$dir/boot"
	fi

	check_fits "$dir/boot" "$boot_size" "set PACKAGES without some of the firmware: the initramfs contains that of every driver in it"
	check_fits "$tree" "$root_size" "set ROOT_SIZE to a larger number of MiB"

	# Partitions: GRUB for BIOS, the EFI system partition, boot, root. Sectors have 512 bytes. Metal3 and pools get numbers from 4 on.
	esp_start=4096
	boot_start=$((esp_start + esp_size * 2048))
	root_start=$((boot_start + boot_size * 2048))
	truncate -s $((root_start / 2048 + root_size + 1))M "$disk"
	sfdisk --quiet "$disk" <<-END
		label: gpt
		1: start=2048, size=2048, type=21686148-6449-6E6F-744E-656564454649, name=bios
		2: start=$boot_start, size=$((boot_size * 2048)), type=L, name=boot
		3: start=$root_start, size=$((root_size * 2048)), type=L, name=root
		15: start=$esp_start, size=$((esp_size * 2048)), type=U, name=esp
	END
	mke2fs -q -t ext4 -L boot -E offset=$((boot_start * 512)),root_owner=0:0 -d "$dir/boot" "$disk" ${boot_size}M
	mke2fs -q -t ext4 -L root -E offset=$((root_start * 512)),root_owner=0:0 -d "$tree" "$disk" ${root_size}M
	# Without fbx64.efi, shim starts GRUB and does not change the firmware's boot order. The prefix of Debian's signed GRUB is /EFI/debian.
	esp() { "$1" -i "$disk@@$((esp_start * 512))" "${@:2}"; }
	esp mformat -F -T $((esp_size * 2048)) -H $esp_start -v ESP ::
	esp mmd ::/EFI ::/EFI/BOOT ::/EFI/debian
	esp mcopy "$root/usr/lib/shim/shim$efi.efi.signed" "::/EFI/BOOT/BOOT${efi^^}.EFI"
	esp mcopy "$root/usr/lib/shim/mm$efi.efi.signed" "::/EFI/BOOT/mm$efi.efi"
	esp mcopy "$root/usr/lib/grub/$grub-efi-signed/grub$efi.efi.signed" "::/EFI/BOOT/grub$efi.efi"
	{ cat "$here/grub/core.cfg" && echo 'configfile $prefix/grub.cfg'; } | esp mcopy - ::/EFI/debian/grub.cfg
	if [ "$architecture" = amd64 ]; then
		# What grub-install writes for BIOS, which needs device nodes of partitions: the boot sector with the number of the first sector of
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
	fi
	qemu-img convert -f raw -O qcow2 "$disk" "$image.new"
	rm -rf "$dir/tree" "$dir/boot" "$dir/core.img" "$disk"
	sync "$image.new"
	mv "$image.new" "$image"
	(cd "$(dirname "$image")" && sha256sum "$(basename "$image")" >"$(basename "$image").sha256sum")
	cp "$image.sha256sum" "$dir/$step.sha256sum"
	built "$step"
fi
