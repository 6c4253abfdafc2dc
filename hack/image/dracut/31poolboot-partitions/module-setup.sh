#!/bin/bash
# A dracut module: new partitions appear although other partitions of the disk are open. Ignition 2.20 and later do this
# themselves.

check() {
	return 255
}

depends() {
	echo ignition
}

install() {
	inst_multiple partx
	inst_simple "$moddir/91-partitions.rules" /usr/lib/udev/rules.d/91-partitions.rules
}
