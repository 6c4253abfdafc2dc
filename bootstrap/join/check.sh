# Verifies that the files and settings that put the Node of this host in its pool are unchanged: before the host joins,
# and after an update. See docs/dev/security.md. Poolboot sets these variables in the lines before:
#   sums       the checksums of the files that Poolboot wrote, in the format of sha256sum
#   variable   the environment variable with the kubelet flags of the pool
#   flags      the environment file that sets the variable
#   directory  the directory with the drop-ins of the kubelet configuration
#   versions   the script that compares the versions of the kubelet and the API server
# With the argument list, it writes what is changed to standard output, one per line, and what that script finds.
# Requires sh, sha256sum, sed, tr, grep and systemctl.
export LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin
wrong=0 as=$1

found() {
	wrong=1
	if [ "$as" = list ]; then
		printf '%s\n' "$1"
		return
	fi
	echo "poolboot: this host does not join, because $1, and its Node could be outside its pool." \
		"A unit, a mount, tmpfiles.d or a program of a MachineConfig or of the image changes it before the kubelet starts:" \
		"remove that and provision the host again, or undo the change and run: systemctl start kubelet.service" >&2
}
changed() { found "$1 differs from what Poolboot wrote"; }

# Compare the files with their checksums.
for file in $(sha256sum -c "$sums" 2>/dev/null | sed -n 's/: FAILED.*//p'); do changed "$file"; done
[ $wrong = 1 ] || sha256sum -c "$sums" >/dev/null 2>&1 || changed "$sums"

# Check the effective unit of the kubelet, with all its drop-ins.
namespaces='RootDirectory RootImage BindPaths BindReadOnlyPaths TemporaryFileSystem MountImages ExtensionImages ExtensionDirectories InaccessiblePaths'
unit=$(systemctl show kubelet.service) || changed 'kubelet.service (systemctl show failed)'
value() { printf '%s\n' "$unit" | sed -n "s/^$1=//p"; }

command=$(value ExecStart | tr -d "\\\\\"'")
fragment=$(value FragmentPath)
expected=$variable
if grep -qs "  $fragment\$" "$sums"; then
	expected="argv[]=$(sed -n 's/^ExecStart=//p' "$fragment") ;"
	# Otherwise, kubeadm starts the kubelet.
	[ -n "$(value WantedBy)$(value RequiredBy)$(value UpheldBy)" ] || found 'no unit wants kubelet.service (see its links in *.wants, and presets)'
fi
# With the kubelet wrapper of the pool, this follows the wrapper.
wrapped=' $POOLBOOT_KUBELET_COMMAND $POOLBOOT_KUBELET_ARGS $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS ;'
case $command in
*"$expected"* | *"$wrapped"*) ;;
*) changed 'ExecStart= of kubelet.service' ;;
esac
files=$(value EnvironmentFiles | sed 's/ (ignore_errors=.*//')
printf '%s\n' "$files" | grep -qxF "$flags" || changed 'EnvironmentFile= of kubelet.service'
identity='--(node[-_]labels|register[-_]with[-_]taints|register[-_]node|hostname[-_]override|provider[-_]id)'
for file in $files; do
	[ "$file" = "$flags" ] && continue
	! grep -qsF "$variable" "$file" || changed "$variable, which $file sets,"
	! grep -qsE "^[^#;].*$identity" "$file" || found "$file has a kubelet flag that identifies the Node"
done
case $(value UnsetEnvironment) in
*"$variable"*) changed 'UnsetEnvironment= of kubelet.service' ;;
esac
for property in $namespaces; do
	[ -z "$(value "$property")" ] || changed "$property= of kubelet.service"
done
for other in $(value ConflictedBy); do found "$other conflicts with kubelet.service"; done

# Check that no drop-in sets a field that is reserved for Poolboot. The kubelet also reads subdirectories and hidden files.
# A # after a space starts a comment.
settings='(registerWithTaints|registerNode|providerID)'
for file in $(grep -RlsiE --include='*.conf' '^([^#]|[^[:space:]]#)*'"$settings"'["'\'']?[[:space:]]*:' "$directory"); do changed "$file"; done
[ "$as" != list ] || sh "$versions" list
exit $wrong
