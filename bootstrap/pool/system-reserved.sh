# Computes what the kubelet reserves for the system by the size of the host, and writes it as a drop-in of the kubelet's
# configuration. See autoSizingReserved in docs/pools.md.
# Usage: system-reserved.sh MEMINFO CPUS OUTPUT
#   MEMINFO  /proc/meminfo
#   CPUS     /sys/devices/system/cpu/online
#   OUTPUT   the drop-in
# Requires sh and mkdir.
set -u
export LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin
meminfo=$1 cpus=$2 output=$3

is_number() { # a positive one for which the arithmetic of the shell has enough bits
	case $1 in
	'' | 0* | *[!0-9]*) return 1 ;;
	esac
	[ ${#1} -le 15 ]
}

# The memory in KiB: 25 % of the first 4 GiB, nothing of the next 4, 6 % of the next 120, and 2 % of the rest.
total=
while read -r name value _; do
	if [ "$name" = MemTotal: ]; then total=$value; fi
done 2>/dev/null <"$meminfo"
if is_number "$total"; then
	rest=$total reserved=0
	take() { # PERCENT of the next GIB
		part=$(($2 * 1048576))
		if [ $rest -lt $part ]; then part=$rest; fi
		rest=$((rest - part)) reserved=$((reserved + part * $1 / 100))
	}
	take 25 4
	take 0 4
	take 6 120
	take 2 1048576
	memory=$((reserved / 1024))Mi of="$((total / 1024))Mi of memory"
else
	memory=1Gi of="an unknown size of memory ($meminfo has no MemTotal)"
fi

# The CPUs, from ranges such as 0-3,8: 60m for the first one, and 12m for each other, but at least 500m.
count=0 list=
read -r list 2>/dev/null <"$cpus"
IFS=,
for range in $list; do
	first=${range%-*} last=${range#*-}
	if [ "$first" != 0 ] && ! is_number "$first" || [ "$last" != 0 ] && ! is_number "$last" || [ "$last" -lt "$first" ]; then
		count=0
		break
	fi
	count=$((count + last - first + 1))
done
unset IFS
millicores=$((48 + 12 * count))
if [ $millicores -lt 500 ]; then millicores=500; fi
if [ $count -gt 0 ]; then of="$of and $count CPUs"; else of="$of and an unknown number of CPUs (in $cpus)"; fi

umask 022
mkdir -p "${output%/*}" || exit
printf '%s\n' '# Computed by Poolboot whenever the kubelet starts, for autoSizingReserved of the MachineConfigPool.' \
	'apiVersion: kubelet.config.k8s.io/v1beta1' 'kind: KubeletConfiguration' 'systemReserved:' \
	"  cpu: ${millicores}m" "  memory: $memory" '  ephemeral-storage: 1Gi' >"$output" || exit
echo "poolboot: this host has $of: the kubelet reserves cpu=${millicores}m, memory=$memory and ephemeral-storage=1Gi for the system, except what drop-ins set in systemReserved"
