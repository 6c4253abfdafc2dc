# Before the host joins, waits until its kubelet and kubeadm have versions that the version skew policy of Kubernetes
# allows: a kubelet is not newer than the API server and at most three minor versions older, and kubeadm join has the
# minor version of the cluster. Until then, it says on the console and to the config server why the host does not join.
# A version that is not known stops nothing. With the argument list, on a host that has joined, it only writes what does
# not fit to standard output. Poolboot sets these variables in the lines before:
#   url         the URL of the API server
#   cluster     the file with the CA of the API server on a host that has joined
#   certificate the client certificate of the kubelet on a host that has joined
#   directory   the directory of kubeadm; empty if the kubelet joins without it
#   kubelet     the kubelet
#   kubeconfig  the kubeconfig with the join credential, as Poolboot writes it
#   report      the curl configuration with the URL and the CA for reports; a host without the file sends none
#   header      the file with the header for reports
#   ca          the file into which the CA of the API server is written
# Requires sh, base64, curl, sed and sleep.
export LC_ALL=C PATH=${directory:+$directory:}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
umask 077
as=$1
if [ "$as" = list ]; then
	directory= # kubeadm has done its work
	[ -e "$certificate" ] || exit 0
fi

value() { sed -n 's/.*"'"$1"'": "\([^"]*\)".*/\1/p' "$kubeconfig"; }

# api prints the version of the API server. The token is not in the arguments of a process.
api() {
	if [ "$as" = list ]; then
		printf 'cert = "%s"\ncacert = "%s"\n' "$certificate" "$cluster"
	else
		value certificate-authority-data | base64 -d >"$ca"
		printf 'header = "Authorization: Bearer %s"\ncacert = "%s"\n' "$(value token)" "$ca"
	fi | curl --silent --show-error --fail --globoff --proto =https --connect-timeout 5 --max-time 10 --capath /dev/null \
		--config - --url "$url/version" | sed -n 's/.*"gitVersion": *"\(v[^"]*\)".*/\1/p'
}

minor() { printf '%s\n' "$1" | sed -n 's/^v1\.\([0-9][0-9]*\)\..*/\1/p'; }

# misfits prints what does not fit the version $1 of the API server.
misfits() {
	server=$(minor "$1") found=
	version=$("$kubelet" --version 2>/dev/null | sed -n 's/^Kubernetes //p')
	has=$(minor "$version")
	if [ "${has:-$server}" -gt "$server" ]; then
		found="kubelet $version is newer than the API server, $1"
	elif [ "${has:-$server}" -lt $((server - 3)) ]; then
		found="kubelet $version is more than three minor versions older than the API server, $1"
	fi
	if [ -n "$directory" ]; then
		version=$(kubeadm version -o short 2>/dev/null)
		has=$(minor "$version")
		[ "${has:-$server}" = "$server" ] || found="${found:+$found, and }kubeadm $version does not have the minor version of the API server, $1"
	fi
	printf %s "$found"
}

for try in 1 2 3 4 5; do
	current=$(api)
	[ -z "$(minor "$current")" ] || break
	[ $try = 5 ] || sleep 5
done
if [ -z "$(minor "$current")" ]; then
	echo 'poolboot: the version of the API server is not known, so the versions of kubelet and kubeadm are not checked' >&2
	exit 0
fi
said= told=
while why=$(misfits "$current"); [ -n "$why" ]; do
	if [ "$as" = list ]; then
		echo "$why"
		exit 0
	fi
	[ "$why" = "$said" ] || echo "poolboot: this host does not join, because $why. Provision it with an image that fits, or upgrade the control plane:" \
		"the host checks again every 30 seconds" >&2
	said=$why
	if [ -e "$report" ] && [ -e "$header" ] && [ "$why" != "$told" ]; then
		printf 'versions\n%s\n' "$why" |
			curl --silent --show-error --fail --output /dev/null --max-time 30 --config "$report" --header "@$header" --data-binary @- && told=$why
	fi
	sleep 30
	next=$(api)
	[ -z "$(minor "$next")" ] || current=$next
done
