#!/usr/bin/env bash
# existing-binary.sh FILE WANTED LINK: links an existing Kubernetes program or etcd instead of building it. Its minor release must be that
# of WANTED (v1.36.3: any v1.36), because the tests and the demo are written for that release.
set -eu
file=$1 wanted=$2 link=$3
program=$(basename "$file")
minor=${wanted%.*}
remedy="put one of $minor there, remove $file to have it built from source, or unset KUBERNETES_BIN and KUBEBUILDER_ASSETS to have all of them built"
fail() {
	echo "$file $1, but $wanted is wanted, or another patch release of $minor. What to do: $remedy." >&2
	exit 1
}

case $program in
etcd) ask=(--version) ;;
kubeadm) ask=(version -o short) ;;
kubectl) ask=(version --client) ;;
*) ask=(--version) ;;
esac
said=$("$file" "${ask[@]}" 2>&1) || fail "does not tell its version ($(head -n 1 <<<"$said" | cut -c1-200))"
# "Kubernetes v1.36.3", "Client Version: v1.36.3", "v1.36.3", "etcd Version: 3.6.8"
found=$(grep -m 1 -oE 'v?[0-9]+\.[0-9]+\.[0-9]+[^ ]*' <<<"$said") || fail "does not tell its version ($(head -n 1 <<<"$said" | cut -c1-200))"
found=v${found#v}
case $found in
"$minor".*) ;;
*) fail "is $found" ;;
esac
ln -sfn "$(realpath "$file")" "$link"
echo "==> use $file ($found)"
