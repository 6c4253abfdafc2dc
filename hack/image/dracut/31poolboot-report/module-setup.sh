#!/bin/bash
# A dracut module: shows Ignition's log on the console, and reports a first boot that fails to the config server.

check() {
	return 255
}

depends() {
	echo poolboot-network
}

install() {
	inst_multiple cat curl journalctl jq mkdir mktemp mount rm rmdir sed systemctl tail umount wc
	inst_script "$moddir/report.sh" /usr/libexec/poolboot/report
	inst_simple "$moddir/poolboot-report.service" "$systemdsystemunitdir/poolboot-report.service"
	$SYSTEMCTL -q --root="$initdir" add-wants emergency.target poolboot-report.service || exit 1
	inst_simple "$moddir/ignition-log.service" "$systemdsystemunitdir/ignition-log.service"
	$SYSTEMCTL -q --root="$initdir" add-wants ignition-complete.target ignition-log.service || exit 1
}
