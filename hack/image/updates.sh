# What Poolboot's agent needs of an image to update its hosts.

# prepare_updates ROOT HACK_IMAGE: adds it to a root file system whose /etc is complete.
prepare_updates() {
	install -m 755 "$2/dracut/31poolboot-grub/ignition-kargs-helper.sh" "$1/usr/sbin/ignition-kargs-helper"
	# The kernel arguments that no configuration removes, where kernel-install looks for them.
	mkdir -p "$1/usr/lib/kernel"
	rm -f "$1/usr/lib/kernel/cmdline" # a hard link in the tree of an image
	sed -n "s/^set kernel_arguments='\(.*\)'\$/\1/p" "$2/grub/kernel-arguments.cfg" >"$1/usr/lib/kernel/cmdline"
	[ -s "$1/usr/lib/kernel/cmdline" ] || fail "grub/kernel-arguments.cfg has no line set kernel_arguments='...'" "restore it"
	# As with OSTree: what /etc was before any configuration.
	rm -rf "$1/usr/etc"
	cp -a "$1/etc" "$1/usr/etc"
}
