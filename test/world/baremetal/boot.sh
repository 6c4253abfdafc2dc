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

# mount_all mounts what its argument lists as /etc/fstab does. One process is much faster than one for each mount.
mount_all() {
	echo "$1" >"$DISK/fstab"
	mount --all --fstab "$DISK/fstab"
}

# The disk: a layer over the shared root file system. The kernel itself does not crash in a power loss, so nothing must
# be synced to survive it.
root=$DISK/root
rm -rf "$DISK"{,/boot}/work/work/incompat
mount -t overlay -o "lowerdir=$ROOTFS,upperdir=$DISK/upper,workdir=$DISK/work,volatile" overlay "$root"
programs='' dirs=() files=()
while read -r program path; do
	if [ -d "$program" ]; then
		dirs+=("$root$path")
	else
		dirs+=("$root${path%/*}") files+=("$root$path")
	fi
	programs+="$program $root$path none bind,ro"$'\n'
done <<<"$PROGRAMS"
mkdir -p "${dirs[@]}"
touch "${files[@]}"

# The programs and the hardware. A container's layers can't be on an overlay themselves. /boot is a file system of its own,
# which ignition-kargs-helper leaves read-only.
mount_all "$programs
overlay $root/boot overlay lowerdir=$ROOTFS/boot,upperdir=$DISK/boot/upper,workdir=$DISK/boot/work,volatile
$DISK/containerd $root/var/lib/containerd none bind,X-mount.mkdir
proc $root/proc proc defaults
sysfs $root/sys sysfs ro
tmpfs $root/dev tmpfs mode=755
devpts $root/dev/pts devpts newinstance,ptmxmode=0666,mode=620,gid=5,X-mount.mkdir
tmpfs $root/dev/shm tmpfs X-mount.mkdir
tmpfs $root/run tmpfs mode=755"
cd "$root"
mkdir -p dev/mqueue run/systemd/network run/kernel
cp --no-dereference /dev/fd /dev/stdin /dev/stdout /dev/stderr dev
ln -s pts/ptmx dev/ptmx
touch dev/{null,zero,full,random,urandom,tty,console,kmsg}
echo "$NAME" >/proc/sys/kernel/hostname
ip link set lo up
echo "# What the site's DHCP server answers.
[Match]
Name=eth0
[Network]
Address=$ADDRESS
Gateway=$GATEWAY
LinkLocalAddressing=no
IPv6AcceptRA=no" >run/systemd/network/80-eth0.network

# The kernel, which belongs to the machine: the host gets copies of what the kubelet sets, an ID of this boot, and no key
# that would reboot the machine.
read -r boot_id </proc/sys/kernel/random/uuid
echo "$boot_id" >run/kernel/boot_id
settings=
for setting in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
	read -r value <"/proc/sys/$setting"
	echo "$value" >"run/kernel/${setting##*/}"
	settings+="$root/run/kernel/${setting##*/} $root/proc/sys/$setting none bind"$'\n'
done
# The boot loader, with the arguments of grub.cfg in the image of this repository. A broken one passes no others.
line=
[ -e boot/is-broken ] || read -r line <boot/kernel-arguments.cfg
line=${line#*\'}
echo "BOOT_IMAGE=/vmlinuz root=LABEL=root ro ignition.platform.id=openstack ${line%\'}" >run/kernel/cmdline
[ ! -e proc/sysrq-trigger ] || settings+="/dev/null $root/proc/sysrq-trigger none bind"
# The control groups, of which the host sees only its own.
groups=
[[ $CGROUPS == *" cgroup2 /sys/fs/cgroup "* ]] || groups="tmpfs $root/sys/fs/cgroup tmpfs mode=755"$'\n'
while read -r _ type path options; do
	groups+="cgroup $root$path $type ${options:-defaults},X-mount.mkdir"$'\n'
done <<<"$CGROUPS"
mount_all "/dev/null $root/dev/null none bind
/dev/zero $root/dev/zero none bind
/dev/full $root/dev/full none bind
/dev/random $root/dev/random none bind
/dev/urandom $root/dev/urandom none bind
/dev/tty $root/dev/tty none bind
/dev/null $root/dev/kmsg none bind
$root/proc/sys $root/proc/sys none bind,ro
$root/proc/sys/net $root/proc/sys/net none bind
$root/run/kernel/boot_id $root/proc/sys/kernel/random/boot_id none bind
$root/run/kernel/cmdline $root/proc/cmdline none bind
$settings
$groups"
mount --bind "$(readlink proc/$$/fd/1)" dev/console
mount -o remount,bind,rw proc/sys/net
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
	for stage in fetch kargs files; do
		PATH=$PATH:$root/usr/sbin BOOT_DIRECTORY=$root/boot KARGS_CHANGED=$state/kargs-changed \
			IGNITION_CONFIG_FILE=$DISK/user-data "$IGNITION" -platform file -stage $stage -root /mnt -log-to-stdout \
			-config-cache "$state/config" -state-file "$state/state" -neednet "$state/neednet" ||
			{ echo "ignition, stage $stage: exit status $?" >&3; exit 1; }
		[ $stage = fetch ] && reach ConfigFetched
		[ ! -e "$state/kargs-changed" ] || SYSTEMD_IGNORE_CHROOT=1 chroot "$root" systemctl --force --force reboot
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
