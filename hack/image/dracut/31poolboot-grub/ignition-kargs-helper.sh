#!/bin/sh
# ignition-kargs-helper [--should-exist ARGUMENT | --should-not-exist ARGUMENT]...
#
# Changes the kernel arguments in kernel-arguments.cfg, which grub.cfg reads, in the file system with the label boot.
# In the initramfs, Ignition runs it in the stage kargs. If an argument changes, ignition-kargs-reboot.service reboots the host.
# On a running host, Poolboot's agent runs it, and reboots the host. There the file system is mounted, read-only, at /boot.
set -eu
device=${BOOT_DEVICE:-/dev/disk/by-label/boot}
changed=${KARGS_CHANGED:-/run/ignition-kargs-changed}
boot=${BOOT_DIRECTORY:-/boot}

fail() {
	printf 'ignition-kargs-helper: %s\n' "$1" >&2
	exit 1
}

if grep -q "^[^ ]* $boot " "${MOUNTS:-/proc/mounts}"; then
	mounted=Yes
else
	mounted=No
	boot=$(mktemp -d)
	mount "$device" "$boot"
	trap 'umount "$boot"; rmdir "$boot"' EXIT
fi
file=$boot/kernel-arguments.cfg
line="^set kernel_arguments='\(.*\)'\$"
grep -q "$line" "$file" || fail "kernel-arguments.cfg in the file system boot has no line set kernel_arguments='...'. Write the image again"
current=$(sed -n "s/$line/\1/p" "$file")

arguments=" ${current:+$current }"
newline='
'
while [ $# -gt 0 ]; do
	[ $# -gt 1 ] || fail "$1 has no value"
	case $2 in
	'' | *[\'\"\\]* | *"$newline"*) fail "GRUB cannot pass the kernel argument $2: it is empty, or has a quote, a backslash or a newline. Change it in the MachineConfig" ;;
	esac
	case $1 in
	--should-exist)
		case $arguments in
		*" $2 "*) ;;
		*) arguments="$arguments$2 " ;;
		esac
		;;
	--should-not-exist)
		while :; do
			case $arguments in
			*" $2 "*) arguments="${arguments%%" $2 "*} ${arguments#*" $2 "}" ;;
			*) break ;;
			esac
		done
		;;
	*) fail "unknown option $1" ;;
	esac
	shift 2
done
arguments=${arguments# }
arguments=${arguments% }
[ "$arguments" != "$current" ] || exit 0

if [ $mounted = Yes ]; then
	# GRUB does not read ext4's journal, which becomes empty when the file system is read-only again.
	mount -o remount,rw "$boot"
	trap 'mount -o remount,ro "$boot"' EXIT
fi
# A power loss leaves the old file or the new one.
printf "set kernel_arguments='%s'\n" "$arguments" >"$file.new"
sync "$file.new"
mv "$file.new" "$file"
sync
: >"$changed"
