# Runs a program inside a simulated host's root. It is the first process of its own mount, PID and UTS namespace, so
# what it mounts and starts vanishes with the program.
# Usage: inroot.sh ROOT BIN NAME PROGRAM [ARGUMENT…]
root=$1 bin=$2 name=$3
shift 3
# The kubelet looks for the mount point of its folder.
mount --bind "$root" "$root"
for dir in /lib /lib32 /lib64 /libx32 /usr/lib /usr/lib32 /usr/lib64 /usr/libx32; do
	[ -d "$dir" ] && [ ! -L "$dir" ] || continue
	mkdir -p "$root$dir"
	mount --bind -o ro "$dir" "$root$dir"
done
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t proc proc "$root/proc"
[ -s "$root/etc/hostname" ] && read -r name <"$root/etc/hostname"
hostname "$name"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
# The kernel belongs to the machine, but the kubelet sets these and ends when it can't: it gets copies.
mkdir -p "$root/run/kernel-settings"
mount -t tmpfs tmpfs "$root/run/kernel-settings"
for setting in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops \
	kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
	copy=$root/run/kernel-settings/$(basename "$setting")
	cat "/proc/sys/$setting" >"$copy"
	mount --bind "$copy" "$root/proc/sys/$setting"
done
for program in kubelet kubeadm; do
	[ ! -f "$root/usr/bin/$program" ] || mount --bind "$bin/$program" "$root/usr/bin/$program"
done
exec chroot "$root" /usr/bin/env -i "$@"
