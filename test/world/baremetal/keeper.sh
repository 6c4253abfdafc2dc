# Keeps a rack until its standard input is closed, which the kernel does when the process that created the rack is killed.
# It is in the network namespace of the rack's switch: the network ends with this process.
# Arguments: the control groups of the rack's hosts, as patterns. Standard input: the directories where disks are mounted.
trap '' HUP INT TERM
disks=
while read -r disk; do disks="$disks$disk
"; done
for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
	left=
	for group in $*; do
		[ -d "$group" ] || continue
		left=1
		find "$group" -name freezer.state | while read -r state; do echo THAWED 2>/dev/null >"$state"; done
		find "$group" -name cgroup.procs | xargs -r cat 2>/dev/null | xargs -r kill -9 2>/dev/null
		find "$group" -depth -type d -exec rmdir {} + 2>/dev/null
	done
	[ -n "$left" ] || break
	sleep 0.2
done
printf %s "$disks" | while read -r disk; do umount --lazy "$disk" 2>/dev/null || :; done
