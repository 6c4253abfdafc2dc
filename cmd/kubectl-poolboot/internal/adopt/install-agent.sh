
# write writes the text $3 with the mode $2 into the file $1, so that the file is never incomplete.
write() {
	mkdir -p "${1%/*}"
	printf %s "$3" >"$1.new"
	chmod "$2" "$1.new"
	sync "$1.new"
	mv -f "$1.new" "$1"
}

# A script that was cut off on its way to the host does nothing.
main() {
	umask 022
	[ "$(id -u)" = 0 ] || fail 'only root can do this: run it as root'
	case ${1-} in
	'')
		for program in base64 curl gzip sed sha256sum sha512sum sync systemctl; do
			command -v "$program" >/dev/null || fail "$program is missing on this host: install it"
		done
		write_files
		systemctl daemon-reload
		systemctl enable --now $units
		systemctl try-restart $installer # it can run an earlier script
		echo 'poolboot: the agent follows when a PoolbootConfig adopts this Node: see journalctl --unit' "$installer"
		;;
	remove)
		[ ! -e "$config" ] || [ "${2-}" = keep ] || fail "this host has the configuration of its pool. To return it first, set \
spec.host.adoption of its PoolbootConfig to Preview, and wait. To keep the configuration for ever: remove keep"
		systemctl disable --now $units 2>/dev/null || : # some can be gone
		rm -f $files
		rm -rf "$state"
		rmdir "$directory" 2>/dev/null || : # what the pool wrote can be there
		systemctl daemon-reload
		;;
	*) fail "$1: set no argument to install the agent, or one of: remove, remove keep" ;;
	esac
}

fail() {
	echo "poolboot: $1" >&2
	exit 1
}

main "$@"
