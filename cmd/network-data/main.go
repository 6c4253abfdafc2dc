// Command network-data writes the network data on the config drive for systemd-networkd. The Debian image runs it
// before systemd-networkd starts, in the initramfs and in the booted system.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/networkdata"
)

const (
	pattern = "70-network-data-*"
	// dhcp is the file of the image for interfaces that no other file configures. With network data, there is none.
	dhcp = "99-dhcp.network"
)

func main() {
	if err := run("/"); err != nil {
		fmt.Fprintf(os.Stderr, "network-data: %v. The network of this host is configured by DHCP. What to do: correct the network data in Metal3, and install the host again\n", err)
		os.Exit(1)
	}
}

// run writes the files below a root directory. With an error, there are none.
func run(root string) error {
	files, err := read(root)
	return errors.Join(err, write(filepath.Join(root, "run/systemd/network"), files))
}

// write makes files the only ones with network data in a directory. Each start of systemd-networkd starts this program,
// also while systemd-networkd already reads the directory: what stays the same is not touched.
func write(directory string, files map[string][]byte) error {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(directory, pattern))
	for _, file := range append(old, filepath.Join(directory, dhcp)) {
		if _, stays := files[filepath.Base(file)]; stays {
			continue
		} else if e := os.Remove(file); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	for name, contents := range files {
		file := filepath.Join(directory, name)
		if current, e := os.ReadFile(file); e == nil && bytes.Equal(current, contents) {
			continue
		}
		err = errors.Join(err, os.WriteFile(file+".new", contents, 0o644), os.Rename(file+".new", file))
	}
	return err
}

// read returns the files of the config drive's network data, by their names. There are none if the host has no network
// data. If it has such files in /etc, which Poolboot keeps up to date, only its DHCP ends.
func read(root string) (map[string][]byte, error) {
	files := map[string][]byte{dhcp: nil} // an empty file hides that of the image
	if kept, _ := filepath.Glob(filepath.Join(root, networkdata.NetworkdDirectory, pattern)); len(kept) > 0 {
		return files, nil
	}
	document, err := readDrive(root, "openstack/latest/network_data.json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	data, err := networkdata.Parse(document)
	if err != nil {
		return nil, fmt.Errorf("network_data.json on the config drive: %w", err)
	}
	for _, file := range data.Networkd() {
		files[filepath.Base(file.Path)] = file.Contents
	}
	if len(files) == 1 {
		return nil, nil
	}
	return files, nil
}

// readDrive reads a file of the config drive. The drive is in one of the file systems of config drives: the kernel is
// not asked to read any other that somebody made. What is read counts even if the drive stays mounted.
func readDrive(root, name string) ([]byte, error) {
	device, err := find(root)
	if err != nil {
		return nil, err
	}
	mountpoint, err := os.MkdirTemp(filepath.Join(root, "run"), "config-drive-")
	if err != nil {
		return nil, err
	}
	if output, err := exec.Command("mount", "-t", "iso9660,vfat", "-o", "ro,nodev,nosuid,noexec", device, mountpoint).CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("mount the config drive: %w: %s", err, bytes.TrimSpace(output)), os.Remove(mountpoint))
	}
	defer func() {
		if output, err := exec.Command("umount", mountpoint).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "network-data: the config drive stays mounted at %s: %v: %s\n", mountpoint, err, bytes.TrimSpace(output))
			return
		}
		_ = os.Remove(mountpoint)
	}()
	return readFile(mountpoint, name)
}

// readFile reads a file of a drive, whose contents are not trusted: a link can't leave it, and nothing else than a file
// is opened for longer than its kind is known.
func readFile(directory, name string) ([]byte, error) {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("%s on the config drive is not a file", name), err)
	}
	return io.ReadAll(io.LimitReader(file, networkdata.MaxSize+1))
}

// find waits for the config drive, a partition with this label. In the initramfs, nothing continues without it.
func find(root string) (string, error) {
	system, wait := mountedSystem, 30*time.Second
	if _, err := os.Stat(filepath.Join(root, "etc/initrd-release")); err == nil {
		system, wait = bootedSystem, 2*time.Minute
	}
	for end := time.Now().Add(wait); ; time.Sleep(100 * time.Millisecond) {
		devices, err := listConfigDrives(root, system)
		if len(devices) > 0 {
			return devices[0], nil
		}
		if time.Now().After(end) {
			return "", errors.Join(fmt.Errorf("there is no config drive after %s", wait), err)
		}
	}
}

// listConfigDrives returns the partitions with the label of a config drive. Ironic writes it to the disk of the image,
// so only this disk counts: others can have volumes of Pods, with any label. If it is not known, all disks count.
func listConfigDrives(root string, system func(root string) (sysfs string, err error)) (found []string, err error) {
	partition, err := system(root)
	if err != nil {
		return nil, err
	}
	if partition == "" {
		return filepath.Glob(filepath.Join(root, "dev/disk/by-label/[cC][oO][nN][fF][iI][gG]-2"))
	}
	partitions, err := filepath.Glob(filepath.Join(filepath.Dir(partition), "*/partition"))
	for _, file := range partitions {
		device := filepath.Join(root, "dev", filepath.Base(filepath.Dir(file)))
		label, e := exec.Command("blkid", "--probe", "--match-tag", "LABEL", "--output", "value", device).Output()
		if e == nil && strings.EqualFold(strings.TrimSpace(string(label)), "config-2") {
			found = append(found, device)
		}
	}
	return found, err
}

// mountedSystem returns the partition that has the root directory.
func mountedSystem(root string) (string, error) {
	var system unix.Stat_t
	if err := unix.Stat(root, &system); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(filepath.Join(root, fmt.Sprintf("sys/dev/block/%d:%d", unix.Major(system.Dev), unix.Minor(system.Dev))))
}

// bootedSystem returns the partition that the kernel argument root names, or "" if it names none, as with multipath.
func bootedSystem(root string) (string, error) {
	arguments, err := os.ReadFile(filepath.Join(root, "proc/cmdline"))
	if err != nil {
		return "", err
	}
	for argument := range strings.FieldsSeq(string(arguments)) {
		key, value, _ := strings.Cut(argument, "=")
		if kind, name, ok := strings.Cut(value, "="); ok {
			value = "/dev/disk/by-" + strings.ToLower(kind) + "/" + name
		}
		if key != "root" || !strings.HasPrefix(value, "/dev/") {
			continue
		}
		device, err := filepath.EvalSymlinks(filepath.Join(root, value))
		if err != nil { // it is not there yet
			return "", err
		}
		partition, err := filepath.EvalSymlinks(filepath.Join(root, "sys/class/block", filepath.Base(device)))
		if _, e := os.Stat(filepath.Join(partition, "partition")); err == nil && errors.Is(e, fs.ErrNotExist) {
			return "", nil
		}
		return partition, err
	}
	return "", nil
}
