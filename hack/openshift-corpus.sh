#!/usr/bin/env bash
# Fetches public documents with OpenShift's objects into a folder outside of this repository, for the test that converts
# them: POOLBOOT_OPENSHIFT_CORPUS=FOLDER go test ./cmd/kubectl-poolboot/internal/convert -run Corpus -v
#
# usage: hack/openshift-corpus.sh FOLDER [URL]
# URL is where the repositories are, with {} for owner/name; by default https://github.com/{}.git.
set -eu
folder=${1:?usage: $0 FOLDER [URL]}
url=${2:-https://github.com/{\}.git}
list=$(cd "$(dirname "$0")" && pwd)/openshift-corpus.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
kinds='^[[:space:]]*(- )?kind:[[:space:]]*"?(MachineConfig|MachineConfigPool|KubeletConfig|MachineConfiguration)"?[[:space:]]*$'
grep -v '^#' "$list" | while read -r name commit; do
  into=$folder/${name/\//+}
  [ ! -e "$into" ] || continue
  git init -q "$work/$name"
  git -C "$work/$name" fetch -q --depth 1 "${url//\{\}/$name}" "$commit"
  mkdir -p "$into.part"
  # Vendored and minified files can be missing in a partial copy; only YAML and Butane count.
  { git -C "$work/$name" grep -lzE "$kinds" FETCH_HEAD -- '*.yaml' '*.yml' || true
    git -C "$work/$name" grep -lzE '^variant:' FETCH_HEAD -- '*.bu' '*.fcc' '*.yaml' '*.yml' || true; } |
    while IFS= read -r -d '' file; do
      path=${file#FETCH_HEAD:}
      mkdir -p "$into.part/$(dirname "$path")"
      git -C "$work/$name" show "FETCH_HEAD:$path" > "$into.part/$path"
    done
  mv "$into.part" "$into"
  echo "$name: $(find "$into" -type f | wc -l) files"
done
