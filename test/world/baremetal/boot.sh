# Boots a host. It is the first process of new mount, PID, UTS, IPC and network namespaces, and becomes the host's systemd.
# It plays the parts of the firmware, the boot loader and the initramfs.
# Environment: NAME, ROOTFS, DISK, ADDRESS, GATEWAY, UUID, IGNITION, and the lists CGROUPS, PROGRAMS with an entry per line.
# It reads a line from the standard input when the network card is plugged in, and writes the steps of the boot to
# file descriptor 3. At the step STOP_AT it waits until its power is cut.
set -eu
if [ -z "${IN_CGROUP:-}" ]; then
	while read -r dir _; do echo 0 >"$dir/cgroup.procs"; done <<<"$CGROUPS"
	read -r _
	export IN_CGROUP=1
	exec unshare --cgroup bash -c "$BASH_EXECUTION_STRING"
fi
exec </dev/null

# reach reports a step.
reach() {
	echo "$1" >&3
	[ "$1" != "$STOP_AT" ] || exec sleep infinity
}

# The disk: a layer over the shared root file system. The kernel itself does not crash in a power loss, so nothing must
# be synced to survive it.
root=$DISK/root
rm -rf "$DISK/work/work/incompat"
mount -t overlay -o "lowerdir=$ROOTFS,upperdir=$DISK/upper,workdir=$DISK/work,volatile" overlay "$root"
# A container's layers can't be on an overlay themselves.
mkdir -p "$root/var/lib/containerd"
mount --bind "$DISK/containerd" "$root/var/lib/containerd"
while read -r program path; do
	if [ -d "$program" ]; then
		mkdir -p "$root$path"
	else
		mkdir -p "$(dirname "$root$path")"
		touch "$root$path"
	fi
	mount --bind -o ro "$program" "$root$path"
done <<<"$PROGRAMS"

# The hardware.
cd "$root"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/pts dev/shm dev/mqueue
for device in null zero full random urandom tty; do touch dev/$device; mount --bind /dev/$device dev/$device; done
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s fd/0 dev/stdin
ln -s fd/1 dev/stdout
ln -s fd/2 dev/stderr
touch dev/console dev/kmsg
mount --bind "$(readlink proc/$$/fd/1)" dev/console
mount --bind /dev/null dev/kmsg
mount -t tmpfs tmpfs dev/shm
mount -t tmpfs -o mode=755 tmpfs run
hostname "$NAME"
ip link set lo up
mkdir -p run/systemd/network
cat >run/systemd/network/80-eth0.network <<END
# What the site's DHCP server answers.
[Match]
Name=eth0
[Network]
Address=$ADDRESS
Gateway=$GATEWAY
LinkLocalAddressing=no
IPv6AcceptRA=no
END

# The kernel, which belongs to the machine: the host gets copies of what the kubelet sets, an ID of this boot, and no key
# that would reboot the machine.
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount --bind proc/sys/net proc/sys/net
mount -o remount,bind,rw proc/sys/net
[ ! -e proc/sysrq-trigger ] || mount --bind /dev/null proc/sysrq-trigger
mkdir run/kernel
cat /proc/sys/kernel/random/uuid >run/kernel/boot_id
mount --bind run/kernel/boot_id proc/sys/kernel/random/boot_id
for setting in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
	cat "/proc/sys/$setting" >"run/kernel/${setting##*/}"
	mount --bind "run/kernel/${setting##*/}" "proc/sys/$setting"
done

# The control groups, of which the host sees only its own.
[[ $CGROUPS == *" cgroup2 /sys/fs/cgroup "* ]] || mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
while read -r _ type path options; do
	mkdir -p "${path#/}"
	mount -t "$type" ${options:+-o "$options"} cgroup "${path#/}"
done <<<"$CGROUPS"
cd /

# The initramfs.
if [ -e "$root/boot/ignition.firstboot" ]; then
	# As in the image of this repository: what /etc was before any configuration.
	[ -e "$root/usr/etc" ] || { cp -a "$root/etc" "$root/usr/etc.new" && mv "$root/usr/etc.new" "$root/usr/etc"; }
	# All users must be able to access the root: Ignition writes a user's SSH keys as that user.
	mount --rbind "$root" /mnt
	# Ignition's state is in memory: it starts over after a power loss.
	state=$root/run/initramfs
	mkdir "$state"
	# As from the site's DHCP server.
	echo "nameserver $GATEWAY" >"$state/resolv.conf"
	[ ! -e /etc/resolv.conf ] || mount --bind "$state/resolv.conf" /etc/resolv.conf
	reach IgnitionStarted
	ip address add "$ADDRESS" dev eth0
	ip link set eth0 up
	ip route add default via "$GATEWAY"
	for stage in fetch files; do
		IGNITION_CONFIG_FILE=$DISK/user-data "$IGNITION" -platform file -stage $stage -root /mnt -log-to-stdout \
			-config-cache "$state/config" -state-file "$state/state" -neednet "$state/neednet" ||
			{ echo "ignition, stage $stage: exit status $?" >&3; exit 1; }
		[ $stage = fetch ] && reach ConfigFetched
	done
	ip link set eth0 down
	ip address flush dev eth0
	umount -R /mnt
	rm -r "$state"
	reach FilesWritten
fi
cd "$root"
mkdir -p run/machine
pivot_root . run/machine
cd /
umount -l run/machine
rmdir run/machine
# From here on nothing of the machine can be reached.
reach UnitsStarted
exec 3>&-
exec env -i container=poolboot container_uuid="$UUID" PATH=/usr/sbin:/usr/bin:/sbin:/bin \
	setpriv --bounding-set=-sys_time,-sys_module /sbin/init systemd.show_status=1
