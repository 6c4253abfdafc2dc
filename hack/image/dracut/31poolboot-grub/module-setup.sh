#!/bin/bash
# A dracut module: kernel arguments of an Ignition config for GRUB, in the place of Ignition's own helper, which fails.

check() {
	return 255
}

depends() {
	echo ignition
}

install() {
	inst_multiple grep mktemp mount mv rmdir sed sleep sync systemctl umount
	# Not with inst_script, which keeps a file that exists.
	cp "$moddir/ignition-kargs-helper.sh" "$initdir/usr/sbin/ignition-kargs-helper"
	inst_simple "$moddir/ignition-kargs-reboot.service" "$systemdsystemunitdir/ignition-kargs-reboot.service"
	$SYSTEMCTL -q --root="$initdir" add-requires ignition-complete.target ignition-kargs-reboot.service || exit 1
}
