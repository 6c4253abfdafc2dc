package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

const static = `{"links": [{"id": "nic1", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:01"}],
	"networks": [{"id": "v4", "type": "ipv4", "link": "nic1", "ip_address": "192.0.2.10/24"}]}`

// host is a host with a config drive, which a fake program mounts.
type host struct {
	t    *testing.T
	root string
}

// newHost returns a host on whose config drive is network data, if it is not empty.
func newHost(t *testing.T, networkData string) *host {
	h := &host{t, t.TempDir()}
	h.write("drive/openstack/latest/user_data", "{}")
	if networkData != "" {
		h.write("drive/openstack/latest/network_data.json", networkData)
	}
	h.addDisk("vda")
	var system syscall.Stat_t
	if err := syscall.Stat(h.root, &system); err != nil {
		t.Fatal(err)
	}
	h.write("sys/dev/block/x", "")
	if err := os.Symlink("../../devices/vda/vda4", h.path(fmt.Sprintf("sys/dev/block/%d:%d", unix.Major(system.Dev), unix.Minor(system.Dev)))); err != nil {
		t.Fatal(err)
	}
	h.write("run/x", "")
	h.program("blkid", `for device; do :; done; cat "$device"`)
	// "$2" are the file systems, which are tried in this order.
	h.program("mount", `[ "$1 $2" = "-t iso9660,vfat" ] || exit 1; for dir; do :; done; rmdir "$dir" && ln -s "$DRIVE" "$dir"`)
	h.program("umount", `rm "$1" && mkdir "$1"`)
	t.Setenv("DRIVE", h.path("drive"))
	t.Setenv("PATH", h.path("bin")+":"+os.Getenv("PATH"))
	return h
}

// addDisk adds a disk with a partition that is a config drive.
func (h *host) addDisk(name string) {
	h.t.Helper()
	h.write("sys/devices/"+name+"/size", "")
	h.write("sys/devices/"+name+"/"+name+"4/partition", "4")
	h.write("dev/"+name+"4", "config-2")
}

func (h *host) path(name string) string { return filepath.Join(h.root, name) }

func (h *host) write(name, text string) {
	h.t.Helper()
	if err := os.MkdirAll(filepath.Dir(h.path(name)), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(h.path(name), []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) program(name, script string) {
	h.t.Helper()
	h.write("bin/"+name, "#!/bin/sh\n"+script+"\n")
	if err := os.Chmod(h.path("bin/"+name), 0o755); err != nil {
		h.t.Fatal(err)
	}
}

// expect expects files in /run/systemd/network, and nothing else in /run.
func (h *host) expect(files ...string) {
	h.t.Helper()
	var found []string
	for _, pattern := range []string{"run/*", "run/systemd/network/*"} {
		matches, err := filepath.Glob(h.path(pattern))
		if err != nil {
			h.t.Fatal(err)
		}
		for _, match := range matches {
			found = append(found, filepath.Base(match))
		}
	}
	if want := append([]string{"systemd", "x"}, files...); !slices.Equal(found, want) {
		h.t.Errorf("got %v, want %v", found, want)
	}
}

func (h *host) run() {
	h.t.Helper()
	if err := run(h.root); err != nil {
		h.t.Fatal(err)
	}
}

func TestNetworkDataReplacesDHCP(t *testing.T) {
	h := newHost(t, static)
	for range 2 { // it is applied at each start of systemd-networkd
		h.run()
		h.expect("70-network-data-nic1.network", "99-dhcp.network")
	}
	text, err := os.ReadFile(h.path("run/systemd/network/70-network-data-nic1.network"))
	if err != nil || !strings.Contains(string(text), "PermanentMACAddress=52:54:00:00:00:01\n") || !strings.Contains(string(text), "Address=192.0.2.10/24\n") {
		t.Errorf("%v: %s", err, text)
	}
	if hidden, err := os.Stat(h.path("run/systemd/network/99-dhcp.network")); err != nil || hidden.Size() != 0 {
		t.Errorf("%v, %v", hidden, err)
	}
}

// systemd-networkd can be reading them.
func TestFilesThatStayTheSameAreNotTouched(t *testing.T) {
	h := newHost(t, static)
	h.run()
	file, old := h.path("run/systemd/network/70-network-data-nic1.network"), time.Unix(1, 0)
	if err := os.Chtimes(file, old, old); err != nil {
		t.Fatal(err)
	}
	h.run()
	if info, err := os.Stat(file); err != nil || !info.ModTime().Equal(old) {
		t.Errorf("the file was written again: %v, %v", info, err)
	}
}

func TestDHCPWithoutNetworkData(t *testing.T) {
	for _, networkData := range []string{"", "{}"} {
		h := newHost(t, networkData)
		h.write("run/systemd/network/70-network-data-old.network", "")
		h.run()
		h.expect()
	}
}

func TestDHCPWithInvalidNetworkData(t *testing.T) {
	h := newHost(t, strings.Replace(static, `"link": "nic1"`, `"link": "nic2"`, 1))
	if err := run(h.root); err == nil || !strings.Contains(err.Error(), "network_data.json on the config drive: networks[0].link: ") {
		t.Errorf("%v", err)
	}
	h.expect()
}

func TestFilesOfThePoolReplaceThoseOfTheConfigDrive(t *testing.T) {
	h := newHost(t, static)
	h.run()
	h.write("etc/systemd/network/70-network-data-other.network", "")
	h.run()
	h.expect("99-dhcp.network")
}

// initramfs makes a host one that is in its initramfs, with a kernel argument. Its root partition appears late.
func (h *host) initramfs(argument string) {
	h.t.Helper()
	h.write("etc/initrd-release", "")
	h.write("proc/cmdline", "BOOT_IMAGE=/vmlinuz "+argument+" ro\n")
	h.write("sys/devices/vda/vda3/partition", "3")
	h.write("sys/class/block/x", "")
	h.write("dev/disk/by-label/x", "")
	h.write("dev/vda3", "root")
	if err := os.Symlink("../../devices/vda/vda3", h.path("sys/class/block/vda3")); err != nil {
		h.t.Fatal(err)
	}
	time.AfterFunc(300*time.Millisecond, func() { _ = os.Symlink("../../vda3", h.path("dev/disk/by-label/root")) })
}

func TestConfigDriveInTheInitramfsIsOnTheDiskOfTheImage(t *testing.T) {
	for _, argument := range []string{"root=LABEL=root", "root=/dev/vda3"} {
		h := newHost(t, static)
		h.addDisk("sda")
		h.initramfs(argument)
		if err := os.Symlink("../../sda4", h.path("dev/disk/by-label/config-2")); err != nil { // udev can choose it
			t.Fatal(err)
		}
		h.program("mount", `for dir; do device=$last last=$dir; done; [ "${device##*/}" = vda4 ] || exit 1; rmdir "$dir" && ln -s "$DRIVE" "$dir"`)
		h.run()
		h.expect("70-network-data-nic1.network", "99-dhcp.network")
	}
}

func TestConfigDriveInTheInitramfsOnAnyDiskIfThatOfTheImageIsUnknown(t *testing.T) {
	for name, prepare := range map[string]func(h *host){
		"no kernel argument": func(h *host) { h.initramfs("quiet") },
		"multipath": func(h *host) {
			h.initramfs("root=LABEL=root")
			if err := os.Remove(h.path("sys/devices/vda/vda3/partition")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, static)
			prepare(h)
			time.AfterFunc(300*time.Millisecond, func() { _ = os.Rename(h.path("dev/vda4"), h.path("dev/disk/by-label/CONFIG-2")) })
			h.run()
			h.expect("70-network-data-nic1.network", "99-dhcp.network")
		})
	}
}

func TestNetworkDataOnAConfigDriveThatStaysMounted(t *testing.T) {
	h := newHost(t, static)
	h.program("umount", "exit 32")
	h.run()
	if _, err := os.Stat(h.path("run/systemd/network/70-network-data-nic1.network")); err != nil {
		t.Error(err)
	}
}

// Users who can create Pods can give a volume this label.
func TestConfigDriveOnADiskOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, static)
		h.write("dev/vda4", "other")
		h.addDisk("sda")
		h.write("dev/disk/by-label/config-2", "")
		if err := os.Remove(h.path("sys/devices/vda/vda4/partition")); err != nil { // also if the disk is not known
			t.Fatal(err)
		}
		if err := run(h.root); err == nil || !strings.Contains(err.Error(), "no config drive after 30s") {
			t.Errorf("%v", err)
		}
		h.expect()
	})
}

// A drive can have anything, and systemd-networkd waits.
func TestConfigDriveWithSomethingElseThanAFile(t *testing.T) {
	for name, create := range map[string]func(h *host, name string) error{
		"a FIFO":                    func(_ *host, name string) error { return syscall.Mkfifo(name, 0o600) },
		"a directory":               func(_ *host, name string) error { return os.Mkdir(name, 0o700) },
		"a link to an endless file": func(_ *host, name string) error { return os.Symlink("/dev/zero", name) },
		"a link to a file of the host": func(h *host, name string) error {
			h.write("secret", static)
			return os.Symlink(h.path("secret"), name)
		},
		"a huge file": func(h *host, name string) error {
			h.write("drive/openstack/latest/network_data.json", static)
			return os.Truncate(name, 1<<40)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, "")
			if err := create(h, h.path("drive/openstack/latest/network_data.json")); err != nil {
				t.Fatal(err)
			}
			failed := make(chan error, 1)
			go func() { failed <- run(h.root) }()
			select {
			case err := <-failed:
				if err == nil || !strings.Contains(err.Error(), "network_data.json") {
					t.Errorf("%v", err)
				}
				h.expect()
			case <-time.After(5 * time.Second):
				t.Error("it waits for ever")
			}
		})
	}
}

func TestConfigDriveThatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, static)
		if err := os.Remove(h.path("dev/vda4")); err != nil {
			t.Fatal(err)
		}
		if err := run(h.root); err == nil || !strings.Contains(err.Error(), "no config drive after 30s") {
			t.Errorf("%v", err)
		}
		h.expect()
	})
}

func TestConfigDriveThatCannotBeMounted(t *testing.T) {
	h := newHost(t, static)
	h.program("mount", `echo "wrong fs type" >&2; exit 32`)
	if err := run(h.root); err == nil || !strings.Contains(err.Error(), "mount the config drive: exit status 32: wrong fs type") {
		t.Errorf("%v", err)
	}
	h.expect()
}
