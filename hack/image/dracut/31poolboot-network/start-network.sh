#!/bin/sh
# start-network SECONDS: starts systemd-networkd, waits until an interface has an address, writes resolv.conf, and starts
# systemd-timesyncd. It waits for the network only: a host whose clock is right boots without NTP server, and the requests
# of one whose clock is wrong are retried.
# 0 waits without a limit, as Ignition does.
set -eu
state=${NETIF_STATE:-/run/systemd/netif/state}
resolv=${RESOLV_CONF:-/etc/resolv.conf}
wait_online=${WAIT_ONLINE:-/usr/lib/systemd/systemd-networkd-wait-online}

systemctl start systemd-networkd.service
# A member of a bond is never routable.
"$wait_online" --any --operational-state=routable --timeout="$1"
servers=$(sed -n 's/^DNS=//p' "$state")
domains=$(sed -n 's/^DOMAINS=//p' "$state")
{
	for server in $servers; do echo "nameserver $server"; done
	[ -z "$domains" ] || echo "search $domains"
} >"$resolv"
systemctl start --no-block systemd-timesyncd.service || echo "The clock is not set: systemd-timesyncd did not start"
