#!/bin/bash
# A dracut module: repeats a first boot that a power loss interrupted.

check() {
	return 255
}

depends() {
	echo ignition
}

install() {
	inst_multiple rm
	inst_simple "$moddir/ignition-repeat.service" "$systemdsystemunitdir/ignition-repeat.service"
	$SYSTEMCTL -q --root="$initdir" add-requires ignition-complete.target ignition-repeat.service || exit 1
}
