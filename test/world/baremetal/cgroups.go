package baremetal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cgroupRoot is where a Linux machine has its control groups.
const cgroupRoot = "/sys/fs/cgroup"

// hierarchy is a mounted hierarchy of control groups. A machine with cgroup v2 has one, a machine with v1 one for each
// controller.
type hierarchy struct {
	// kind is the type of the file system, cgroup or cgroup2.
	kind string
	// path is the mount point.
	path string
	// options are the mount options that select the controllers of a v1 hierarchy.
	options string
}

// hierarchies returns the hierarchies of this machine.
func hierarchies() ([]hierarchy, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	var found []hierarchy
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) < 4 || (fields[2] != "cgroup" && fields[2] != "cgroup2") || !strings.HasPrefix(fields[1], cgroupRoot) {
			continue
		}
		h := hierarchy{kind: fields[2], path: fields[1]}
		if h.kind == "cgroup" {
			h.options = controllers(fields[3])
		}
		found = append(found, h)
	}
	if len(found) == 0 {
		return nil, errors.New("no control groups are mounted below " + cgroupRoot + ". What to do: run this on a machine with systemd, or in a privileged container")
	}
	return found, nil
}

// controllers returns those mount options of a cgroup v1 hierarchy that select it.
func controllers(options string) string {
	selected := slices.DeleteFunc(strings.Split(options, ","), func(option string) bool {
		return slices.Contains([]string{"rw", "ro", "relatime", "noatime", "nosuid", "nodev", "noexec", "xattr", "clone_children"}, option) ||
			strings.HasPrefix(option, "release_agent=")
	})
	if slices.ContainsFunc(selected, func(option string) bool { return strings.HasPrefix(option, "name=") }) {
		selected = append([]string{"none"}, selected...)
	}
	return strings.Join(selected, ",")
}

// createGroup creates a control group in each hierarchy.
func createGroup(all []hierarchy, name string) error {
	for _, h := range all {
		group := filepath.Join(h.path, name)
		if h.kind == "cgroup2" {
			if err := delegate(h.path); err != nil {
				return err
			}
		}
		if err := os.Mkdir(group, 0o755); err != nil {
			return err
		}
		// A new group of cpuset in v1 has no CPUs and no memory, and can have no processes.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(h.path, file))
			if h.kind == "cgroup2" || errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(group, file), value, 0o644)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// delegate enables the controllers of a cgroup v2 hierarchy for its groups.
func delegate(path string) error {
	available, err := os.ReadFile(filepath.Join(path, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, controller := range strings.Fields(string(available)) {
		if err := os.WriteFile(filepath.Join(path, "cgroup.subtree_control"), []byte("+"+controller), 0o644); err != nil {
			return fmt.Errorf("enable the controller %s: %w", controller, err)
		}
	}
	return nil
}

// thawDying thaws a control group of v1 while the first process of a host is ending, until exited is closed. With v1,
// the kernel does not kill a frozen process, and waits for it. A container stays frozen if its runtime is killed at a
// bad moment.
func thawDying(all []hierarchy, name string, first int, exited <-chan struct{}) {
	for {
		select {
		case <-exited:
			return
		case <-time.After(time.Second):
		}
		if !isExiting(first) {
			continue
		}
		for _, h := range all {
			_ = filepath.WalkDir(filepath.Join(h.path, name), func(path string, entry fs.DirEntry, err error) error {
				if err == nil && entry.Name() == "freezer.state" {
					_ = os.WriteFile(path, []byte("THAWED"), 0o644)
				}
				return nil
			})
		}
	}
}

// isExiting reports whether a process is ending, by its flag PF_EXITING.
func isExiting(pid int) bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ") // after the name of the program
	fields := strings.Fields(rest)
	if len(fields) < 7 {
		return false
	}
	flags, _ := strconv.ParseUint(fields[6], 10, 64)
	return flags&0x4 != 0
}

// removeTimeout is the time in which the kernel must release the groups of killed processes.
const removeTimeout = 10 * time.Second

// removeGroup removes a control group, whose processes must have been killed, from each hierarchy.
func removeGroup(all []hierarchy, name string) error {
	var errs []error
	for _, h := range all {
		errs = append(errs, removeTree(filepath.Join(h.path, name)))
	}
	return errors.Join(errs...)
}

func removeTree(group string) error {
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		var folders []string
		err := filepath.WalkDir(group, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				folders = append(folders, path)
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		})
		for _, folder := range slices.Backward(folders) {
			if removeErr := os.Remove(folder); removeErr != nil && !errors.Is(removeErr, fs.ErrNotExist) {
				err = removeErr
			}
		}
		if err == nil {
			return nil
		}
		if !errors.Is(err, syscall.EBUSY) || time.Since(start) > removeTimeout {
			return fmt.Errorf("remove control group: %w", err)
		}
	}
}
