#!/usr/bin/env bash
# Fetches public documents with OpenShift's objects into a folder outside of this repository, for the test that converts
# them: POOLBOOT_OPENSHIFT_CORPUS=FOLDER go test ./cmd/kubectl-poolboot/internal/convert -run Corpus -v
#
# usage: hack/openshift-corpus.sh FOLDER [URL]
# URL is where the repositories are, with {} for owner/name; by default https://github.com/{}.git. It can be a folder of
# bare repositories, which may lack large files.
set -eu
folder=${1:?usage: $0 FOLDER [URL]}
url=${2:-https://github.com/{\}.git}
list=$(cd "$(dirname "$0")" && pwd)/openshift-corpus.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
kinds='^[[:space:]]*(- )?kind:[[:space:]]*"?(MachineConfig|MachineConfigPool|KubeletConfig|MachineConfiguration|ContainerRuntimeConfig|ImageDigestMirrorSet|ImageTagMirrorSet|ImageContentSourcePolicy)"?[[:space:]]*$'
grep -v '^#' "$list" | while read -r name commit; do
  into=$folder/${name/\//+}
  [ ! -e "$into" ] || continue
  from=${url//\{\}/$name}
  if [ ! -d "$from" ]; then
    git init -q --bare "$work/$name"
    git --git-dir "$work/$name" fetch -q --depth 1 "$from" "$commit"
    from=$work/$name
  fi
  mkdir -p "$into.part"
  { git --git-dir "$from" grep -lzE "$kinds" "$commit" -- '*.yaml' '*.yml' || true
    git --git-dir "$from" grep -lzE '^variant:' "$commit" -- '*.bu' '*.fcc' '*.yaml' '*.yml' || true; } 2> /dev/null |
    while IFS= read -r -d '' file; do
      path=${file#"$commit":}
      mkdir -p "$into.part/$(dirname "$path")"
      git --git-dir "$from" show "$file" > "$into.part/$path"
    done
  mv "$into.part" "$into"
  echo "$name: $(find "$into" -type f | wc -l) files"
done
