# Verifies, before a host joins, that the files and settings that put its Node in its pool are unchanged. See
# docs/dev/security.md.
# Usage: check.sh SUMS VARIABLE FLAGS DIRECTORY
#   SUMS       the checksums of the files that Poolboot wrote, in the format of sha256sum
#   VARIABLE   the environment variable with the kubelet flags of the pool
#   FLAGS      the environment file that sets the variable
#   DIRECTORY  the directory with the drop-ins of the kubelet configuration
# Requires sh, sha256sum, sed, tr, grep and systemctl.
export LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin
sums=$1 variable=$2 flags=$3 directory=$4 wrong=0

stop() {
	wrong=1
	echo "poolboot: this host does not join, because $1 differs from what Poolboot wrote, and its Node could be outside its pool." \
		"A unit, a mount, tmpfiles.d or a program of a MachineConfig or of the image changes it before the kubelet starts:" \
		"remove that and provision the host again, or undo the change and run: systemctl start kubelet.service" >&2
}

# Compare the files with their checksums.
for file in $(sha256sum -c "$sums" 2>/dev/null | sed -n 's/: FAILED.*//p'); do stop "$file"; done
[ $wrong = 1 ] || sha256sum -c "$sums" >/dev/null 2>&1 || stop "$sums"

# Check the effective unit of the kubelet, with all its drop-ins.
namespaces='RootDirectory RootImage BindPaths BindReadOnlyPaths TemporaryFileSystem MountImages ExtensionImages ExtensionDirectories InaccessiblePaths'
unit=$(systemctl show kubelet.service) || stop 'kubelet.service (systemctl show failed)'
value() { printf '%s\n' "$unit" | sed -n "s/^$1=//p"; }

command=$(value ExecStart | tr -d "\\\\\"'")
fragment=$(value FragmentPath)
expected=$variable
if grep -qs "  $fragment\$" "$sums"; then expected="argv[]=$(sed -n 's/^ExecStart=//p' "$fragment") ;"; fi
# With the kubelet wrapper of the pool, this follows the wrapper.
wrapped=' $POOLBOOT_KUBELET_COMMAND $POOLBOOT_KUBELET_ARGS $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS ;'
case $command in
*"$expected"* | *"$wrapped"*) ;;
*) stop 'ExecStart= of kubelet.service' ;;
esac
files=$(value EnvironmentFiles | sed 's/ (ignore_errors=.*//')
printf '%s\n' "$files" | grep -qxF "$flags" || stop 'EnvironmentFile= of kubelet.service'
for file in $files; do
	[ "$file" = "$flags" ] || ! grep -qsF "$variable" "$file" || stop "$variable, which $file sets,"
done
case $(value UnsetEnvironment) in
*"$variable"*) stop 'UnsetEnvironment= of kubelet.service' ;;
esac
for property in $namespaces; do
	[ -z "$(value "$property")" ] || stop "$property= of kubelet.service"
done

# Check that no drop-in sets a field that is reserved for Poolboot. The kubelet also reads subdirectories and hidden files.
# A # after a space starts a comment.
settings='(registerWithTaints|registerNode|providerID)'
for file in $(grep -RlsiE --include='*.conf' '^([^#]|[^[:space:]]#)*'"$settings"'["'\'']?[[:space:]]*:' "$directory"); do stop "$file"; done
exit $wrong
