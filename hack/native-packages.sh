#!/usr/bin/env bash
# native-packages.sh [OPTION...] [PACKAGE...]: installs Debian packages if they are missing, with options of apt-get install.
# Default: the C compiler, and the C libraries that the real Ignition and runc link against.
set -eu
missing= options=
while [[ ${1-} = -* ]]; do options+=" $1"; shift; done
exec 9<"$0"
flock 9 # make builds several programs at a time, and apt-get refuses to run twice
[ $# -gt 0 ] || set -- gcc libc6-dev libblkid-dev libseccomp-dev pkg-config
for package; do
	dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=" $package"
done
[ -z "$missing" ] && exit 0
if [ "$(id -u)" = 0 ]; then as_root=; elif sudo -n true 2>/dev/null; then as_root=sudo; else
	echo "Missing Debian packages:$missing. Install them: sudo apt-get install$options$missing" >&2
	exit 1
fi
$as_root apt-get update -qq
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq $options $missing
