#!/bin/bash
# A dracut module: starts systemd-networkd if Ignition needs the network, with the network data on the config drive and without
# OpenStack's metadata service, and sets the clock with systemd-timesyncd.

check() {
	return 255
}

depends() {
	echo ignition systemd-networkd
}

install() {
	inst_multiple blkid ip mount sed systemctl umount "$systemdutildir/systemd-networkd-wait-online"
	# Not with dracut's own module, whose systemd-time-wait-sync blocks the boot of a host without NTP server.
	inst_multiple -o "$systemdutildir/systemd-timesyncd" "$systemdsystemunitdir/systemd-timesyncd.service"
	local file
	for file in passwd group; do
		grep '^systemd-timesync:' "$dracutsysrootdir/etc/$file" >>"$initdir/etc/$file"
	done
	inst_script "$moddir/block-metadata.sh" /usr/libexec/poolboot/block-metadata
	inst_script "$moddir/start-network.sh" /usr/libexec/poolboot/start-network
	inst_binary "$moddir/network-data" /usr/libexec/poolboot/network-data
	inst_simple "$moddir/network-data.service" "$systemdsystemunitdir/network-data.service"
	$SYSTEMCTL -q --root="$initdir" enable network-data.service || exit 1
	inst_simple "$moddir/99-dhcp.network" /usr/lib/systemd/network/99-dhcp.network
	inst_simple "$moddir/ignition-network.service" "$systemdsystemunitdir/ignition-network.service"
	$SYSTEMCTL -q --root="$initdir" add-requires ignition-complete.target ignition-network.service || exit 1
}

installkernel() {
	# The file systems of config drives.
	instmods isofs vfat nls_ascii nls_cp437 nls_iso8859-1
}
