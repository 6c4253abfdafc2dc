#!/bin/sh
# start-network SECONDS: starts systemd-networkd, waits until an interface is configured, and writes resolv.conf.
# 0 waits without a limit, as Ignition does.
set -eu
state=${NETIF_STATE:-/run/systemd/netif/state}
resolv=${RESOLV_CONF:-/etc/resolv.conf}
wait_online=${WAIT_ONLINE:-/usr/lib/systemd/systemd-networkd-wait-online}

systemctl start systemd-networkd.service
"$wait_online" --any --timeout="$1"
servers=$(sed -n 's/^DNS=//p' "$state")
domains=$(sed -n 's/^DOMAINS=//p' "$state")
{
	for server in $servers; do echo "nameserver $server"; done
	[ -z "$domains" ] || echo "search $domains"
} >"$resolv"
