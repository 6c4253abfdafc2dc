#!/bin/sh
# block-metadata add|del: the user data is on the config drive. On the platform openstack, Ignition also requests it from the
# metadata service and takes the first answer, so every machine on the network could configure this host.
set -eu
# systemd-networkd removes the rules of others, except those of the kernel.
ip -4 rule "$1" to 169.254.169.254 prohibit protocol kernel
[ ! -e /proc/net/if_inet6 ] || ip -6 rule "$1" to fe80::a9fe:a9fe prohibit protocol kernel
