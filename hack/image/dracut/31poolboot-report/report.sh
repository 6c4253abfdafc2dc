#!/bin/sh
# Reports the stage of Ignition that failed, and the end of Ignition's log, to the URL in the user data with the token in
# the user data.
set -eu
umask 077
labels=${LABELS:-/dev/disk/by-label}
start_network=${START_NETWORK:-/usr/libexec/poolboot/start-network}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# The stage mount also fails if it cannot unmount after a failure of the stage files.
stage=
for candidate in files mount disks kargs fetch fetch-offline; do
	if systemctl --quiet is-failed "ignition-$candidate.service"; then
		stage=$candidate
		break
	fi
done
[ -n "$stage" ] || exit 0 # something else failed

# Only what Ignition logs: when it fails, it also prints the whole configuration, with its secrets, to the standard error.
# The server accepts 4,096 bytes. The first line of the end of a log is incomplete.
# What follows the first failure is the log of unmounting.
journalctl --quiet --output=cat --identifier=ignition _TRANSPORT=syslog | sed '/^Ignition failed: /q' >"$dir/log"
echo "$stage" >"$dir/report"
if [ "$(wc -c <"$dir/log")" -gt 4000 ]; then
	tail -c 4000 "$dir/log" | sed 1d >>"$dir/report"
else
	cat "$dir/log" >>"$dir/report"
fi

device=$labels/config-2
[ -e "$device" ] || device=$labels/CONFIG-2
mkdir "$dir/drive"
mount -o ro "$device" "$dir/drive"
cat "$dir/drive/openstack/latest/user_data" >"$dir/user_data"
umount "$dir/drive"
rmdir "$dir/drive"

url=$(jq -r '.ignition.config.merge[0].source // empty' "$dir/user_data")
[ -n "$url" ] || exit 0 # not Poolboot's
jq -r '.ignition.config.merge[0].httpHeaders[]? | "\(.name): \(.value)"' "$dir/user_data" >"$dir/headers"
jq -r '.ignition.security.tls.certificateAuthorities[]?.source | split(",")[1] | @base64d' "$dir/user_data" >"$dir/ca"
set --
[ ! -s "$dir/ca" ] || set -- --cacert "$dir/ca"

"$start_network" 120
curl --silent --show-error --fail --output /dev/null --max-time 30 --retry 8 --retry-all-errors --retry-max-time 600 \
	"$@" --header "@$dir/headers" --data-binary "@$dir/report" "$url"
echo "Reported to the config server that Ignition failed in the stage $stage"
