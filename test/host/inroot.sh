# Runs a program inside a simulated host's root. It is the first process of its own mount, PID and UTS namespace, so
# what it mounts and starts vanishes with the program.
# Usage: inroot.sh ROOT BIN NAME PROGRAM [ARGUMENT…]
root=$1 bin=$2 name=$3
shift 3
for dir in /lib /lib32 /lib64 /libx32 /usr/lib /usr/lib32 /usr/lib64 /usr/libx32; do
	[ -d "$dir" ] && [ ! -L "$dir" ] || continue
	mkdir -p "$root$dir"
	mount --bind -o ro "$dir" "$root$dir"
done
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t proc proc "$root/proc"
[ -s "$root/etc/hostname" ] && read -r name <"$root/etc/hostname"
echo "$name" >/proc/sys/kernel/hostname
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
for program in kubelet kubeadm; do
	[ ! -f "$root/usr/bin/$program" ] || mount --bind "$bin/$program" "$root/usr/bin/$program"
done
exec chroot "$root" /usr/bin/env -i "$@"
