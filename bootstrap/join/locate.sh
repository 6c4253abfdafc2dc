# Finds out, on a host that Poolboot did not boot, what the script below needs. Its kubeconfig says where the API server
# is, the API server who the kubelet is, and the Node which PoolbootConfig adopts it. Poolboot sets these variables in the
# lines before, besides those of the script below:
#   kubeconfig   the kubeconfig of the kubelet
#   server       the URL of the config server
#   record       the annotation of the Node with the namespace and the name of the PoolbootConfig
#   pointer      the last part of the URL of the assignment
#   settings     the file with the settings of the agent
#   content      its content, with @namespace@ and @name@ for those of the PoolbootConfig
# Also requires base64.
locate() {
	api=$(sed -n 's|^ *server: *"\{0,1\}\(https://[^" ]*\)"\{0,1\} *$|\1|p' "$kubeconfig" 2>/dev/null | sed 1q)
	[ -n "$api" ] || { echo "the file $kubeconfig names no API server" && return 1; }
	mkdir -p "${program%/*}"
	sed -n 's|^ *certificate-authority-data: *"\{0,1\}\([A-Za-z0-9+/=]*\).*|\1|p' "$kubeconfig" | sed 1q | base64 -d >"$cluster"
	[ -s "$cluster" ] || cp "$(sed -n 's|^ *certificate-authority: *"\{0,1\}\([^" ]*\).*|\1|p' "$kubeconfig" | sed 1q)" "$cluster" 2>/dev/null ||
		{ echo "the file $kubeconfig has no CA of the API server" && return 1; }
	set -- --header 'Content-Type: application/json' --data '{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}'
	get "$cluster" "$api/apis/authentication.k8s.io/v1/selfsubjectreviews" "$program.self" "$@" || return 1
	name=$(sed -n 's|.*"system:node:\([a-z0-9.-]*\)".*|\1|p' "$program.self" | sed 1q)
	rm -f "$program.self"
	[ -n "$name" ] || { echo "the certificate in $certificate is not that of a kubelet" && return 1; }
	node=$api/api/v1/nodes/$name
	get "$cluster" "$node" "$program.node" || return 1
	adopted=$(sed -n 's|.*"'"$record"'": *"\([a-z0-9.-]*/[a-z0-9.-]*\)".*|\1|p' "$program.node" | sed 1q)
	[ -n "$adopted" ] || { echo "no PoolbootConfig adopts Node $name yet" && return 1; }
	assignment=$server/update/$adopted/$pointer
	mkdir -p "${settings%/*}"
	printf '%s\n' "$content" | sed "s|@namespace@|${adopted%/*}|; s|@name@|${adopted#*/}|" >"$settings.new" && chmod 644 "$settings.new" && mv "$settings.new" "$settings"
}
