package hostfiles

import (
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// Look returns a number that is another one after something changed at a path of the configuration, or at what systemd
// reads of these units: their files, drop-ins, and the directories in which units are enabled. It reads no contents:
// the kernel sets the time of the last change of a file, and programs can't. 1,000 paths take some milliseconds.
func (u *Updater) Look(units ...string) uint64 {
	u.mounts.forget()
	seen := fnv.New64a()
	managed := u.managed()
	for _, name := range slices.Sorted(maps.Keys(managed)) {
		u.lookAt(seen, managed[name].Real)
	}
	names := map[string]bool{"service.d": true}
	for _, unit := range units {
		names[unit], names[unit+".d"] = true, true
	}
	for _, directory := range ignition.UnitDirectories {
		real, found, err := u.find(directory)
		if err != nil || !isDirectory(found) {
			continue
		}
		entries, _ := u.list(real)
		slices.Sort(entries)
		for _, entry := range entries {
			isEnabled := directory == hosttree.UnitDirectory && slices.Contains([]string{".wants", ".requires"}, path.Ext(entry))
			if !names[entry] && !isEnabled {
				continue
			}
			u.lookAt(seen, path.Join(real, entry))
			if strings.HasSuffix(entry, ".d") { // systemd reads all that is in it
				dropIns, _ := u.list(path.Join(real, entry))
				slices.Sort(dropIns)
				for _, dropIn := range dropIns {
					u.lookAt(seen, path.Join(real, entry, dropIn))
				}
			}
		}
	}
	return seen.Sum64()
}

// lookAt writes what changes when something changes at a path.
func (u *Updater) lookAt(seen io.Writer, real string) {
	found, err := u.stat(real)
	if err != nil || found == nil {
		fmt.Fprintln(seen, real, err)
		return
	}
	if isDirectory(found) && !strings.HasPrefix(path.Join("/", real), hosttree.UnitDirectory+"/") {
		found.Size, found.Ctim.Sec, found.Ctim.Nsec = 0, 0, 0 // what else is in it does not matter
	}
	fmt.Fprintln(seen, real, found.Dev, found.Ino, found.Mode, found.Uid, found.Gid, found.Size, found.Ctim)
}
