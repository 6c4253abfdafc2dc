# Installs the agent of a host whose configuration is in its data Secret. Such a host boots and joins without the config
# server, so this tries until the config server can be reached. The API server says which revision, a SHA-256, the
# assignment of the host has, and the assignment names the SHA-512 of the agent: the config server alone can't replace it.
# Poolboot sets these variables in the lines before:
#   node         the URL of the Node of this host
#   annotation   the annotation of the Node with the revision
#   cluster      the file with the CA of the API server
#   assignment   the URL of the assignment
#   agents       the URL below which the agent of each hash is
#   ca           the file with the CA of the config server; empty if the host trusts it
#   certificate  the client certificate of the kubelet, with its key
#   program      the file of the agent
#   unit         the unit of the agent
# The function locate can set some of them later.
# Requires sh, curl, gzip, sed, sha256sum, sha512sum, sleep, sync, systemctl and uname.
export LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin
umask 077
# Neither a server without an end nor a program with a wrong size fills the disk: no file gets more than 64 MiB.
ulimit -f 131072
trap '' XFSZ # to say why
case $(uname -m) in
x86_64) architecture=amd64 ;;
aarch64) architecture=arm64 ;;
*) architecture=$(uname -m) ;;
esac

# get downloads the URL $2 into the file $3, if the CA in the file $1 issued the certificate of the server: with --cacert
# alone, the curl of Debian also trusts the CAs in /etc/ssl/certs. Slow links are no reason to end a download, but silence is.
# More arguments are options of curl.
get() {
	from=$1 url=$2 to=$3
	shift 3
	curl --silent --show-error --fail --globoff --proto =https --connect-timeout 10 --speed-limit 1 --speed-time 60 \
		${from:+--cacert "$from" --capath /dev/null} --cert "$certificate" --output "$to" --url "$url" "$@" 2>&1
}

install() {
	[ -s "$certificate" ] || { echo 'the kubelet has no certificate yet' && return 1; }
	mkdir -p "${program%/*}"
	locate || return 1
	get "$cluster" "$node" "$program.node" || return 1
	revision=$(sed -n 's|.*"'"$annotation"'": *"\([0-9a-f]\{64\}\)".*|\1|p' "$program.node")
	[ -n "$revision" ] || { echo 'the manager offers no agent to this host yet' && return 1; }
	get "$ca" "$assignment" "$program.assignment" || return 1
	sha512=
	! echo "$revision  $program.assignment" | sha256sum --check --status ||
		sha512=$(sed -n 's/.*"'"$architecture"'":"\([0-9a-f]\{128\}\)".*/\1/p' "$program.assignment")
	rm -f "$program.node" "$program.assignment" # the assignment can have secrets
	[ -n "$sha512" ] || { echo "the assignment of this host is not the one that its Node names, or has no agent for $architecture" && return 1; }
	get "$ca" "$agents/$sha512" "$program.gz" || return 1
	gzip -dc "$program.gz" 2>/dev/null >"$program.new" && echo "$sha512  $program.new" | sha512sum --check --status ||
		{ echo "what the config server sent is not the agent with the hash $sha512" && return 1; }
	rm -f "$program.gz"
	chmod 755 "$program.new" && sync "$program.new" && mv "$program.new" "$program"
}

said=
until why=$(install); do
	[ "$why" = "$said" ] || echo "poolboot: the agent is not installed yet, so this host keeps its configuration: $(echo "$why" | sed 1q)" >&2
	said=$why
	sleep 10
done
exec systemctl start --no-block "$unit"
