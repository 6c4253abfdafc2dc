# Poolboot's check before a host joins: is what puts its Node into its pool as Poolboot wrote it? See docs/security.md.
# Usage: check.sh SUMS VARIABLE FLAGS DIRECTORY
#   SUMS       the files that Poolboot wrote, as sha256sum writes them
#   VARIABLE   the variable that the kubelet takes its pool's flags from
#   FLAGS      the environment file that sets it
#   DIRECTORY  where drop-ins of the kubelet's configuration are
# It needs sh, sha256sum, sed, tr, grep and systemctl.
export LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin
sums=$1 variable=$2 flags=$3 directory=$4 wrong=0

stop() {
	wrong=1
	echo "poolboot: this host does not join, because $1 is not as Poolboot wrote it, and its Node could be outside its pool." \
		"A unit, a mount, tmpfiles.d or a program of a MachineConfig or of the image changes it before the kubelet starts:" \
		"remove that and provision the host again, or undo the change and run: systemctl start kubelet.service" >&2
}

# The files.
for file in $(sha256sum -c "$sums" 2>/dev/null | sed -n 's/: FAILED.*//p'); do stop "$file"; done
[ $wrong = 1 ] || sha256sum -c "$sums" >/dev/null 2>&1 || stop "$sums"

# The kubelet's unit, with all drop-ins, as systemd sees it.
namespaces='RootDirectory RootImage BindPaths BindReadOnlyPaths TemporaryFileSystem MountImages ExtensionImages ExtensionDirectories InaccessiblePaths'
unit=$(systemctl show kubelet.service) || stop 'kubelet.service (systemctl show failed)'
value() { printf '%s\n' "$unit" | sed -n "s/^$1=//p"; }

command=$(value ExecStart | tr -d "\\\\\"'")
fragment=$(value FragmentPath)
expected=$variable
if grep -qs "  $fragment\$" "$sums"; then expected="argv[]=$(sed -n 's/^ExecStart=//p' "$fragment") ;"; fi
case $command in
*"$expected"*) ;;
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

# What the kubelet's configuration may not say. The kubelet reads directories below and hidden files too. A # behind a space begins a comment.
settings='(registerWithTaints|registerNode|providerID)'
for file in $(grep -RlsiE --include='*.conf' '^([^#]|[^[:space:]]#)*'"$settings"'["'\'']?[[:space:]]*:' "$directory"); do stop "$file"; done
exit $wrong
