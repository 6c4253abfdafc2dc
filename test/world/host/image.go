package host

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The files of all images, and those of the kubeadm image only, by their path in the root.
//
//go:embed all:image
var imageFiles embed.FS

// tools are the programs of a minimal system for units and scripts. They are copied from this machine.
var tools = []string{
	"sh", "bash", "sha256sum", "cat", "chmod", "chown", "cp", "cut", "date", "dirname", "basename", "echo", "env", "false", "find",
	"grep", "head", "hostname", "id", "install", "ln", "losetup", "ls", "mkdir", "mktemp", "mount", "mv", "printf", "readlink", "rm",
	"rmdir", "sed", "seq", "sleep", "sort", "stat", "tail", "tee", "test", "touch", "tr", "true", "umount", "uname", "wc",
}

// folders are the directories of a root file system, with their modes.
var folders = map[string]fs.FileMode{
	"dev": 0o755, "proc": 0o755, "sys": 0o755, "run": 0o755, "tmp": 0o1777, "root": 0o700, "etc/selinux": 0o755,
	"usr/bin": 0o755, "usr/sbin": 0o755, "usr/local/bin": 0o755, "var/lib": 0o755, "var/log": 0o755, "var/tmp": 0o1777,
	"etc/kubernetes/kubelet.conf.d": 0o755, "run/containerd": 0o755, coreHome: 0o700,
}

// coreHome belongs to the user core, whose SSH keys are in machine configs.
const coreHome = "home/core"

// coreID is the ID of that user and its group. A user namespace only has the user root.
func coreID() int {
	if os.Geteuid() == 0 {
		return 1000
	}
	return 0
}

// mountPoints are the empty files over which the real programs are mounted.
var mountPoints = map[Image][]string{
	KubeletImage: {"kubelet"},
	KubeadmImage: {"kubelet", "kubeadm"},
}

// writeImage writes a new operating system to root, as a provisioner writes it to a disk.
func (h *Host) writeImage() error {
	root := h.Root()
	if err := os.RemoveAll(root); err != nil {
		return fmt.Errorf("wipe the disk: %w", err)
	}
	for folder, mode := range folders {
		if err := makeFolder(filepath.Join(root, folder), mode); err != nil {
			return err
		}
	}
	images := []string{"image/base"}
	if h.options.Image == KubeadmImage {
		images = append(images, "image/kubeadm")
	}
	for _, image := range images {
		files, err := fs.Sub(imageFiles, image)
		if err != nil {
			return err
		}
		if err := os.CopyFS(root, files); err != nil {
			return fmt.Errorf("write the image: %w", err)
		}
	}
	for name, text := range map[string]string{
		"etc/machine-id": machineID(h.options.Name) + "\n",
		"etc/passwd":     fmt.Sprintf("root:x:0:0::/root:/bin/sh\ncore:x:%[1]d:%[1]d::/%[2]s:/bin/sh\n", coreID(), coreHome),
		"etc/shadow":     "root:*:::::::\ncore:*:::::::\n",
		"etc/group":      fmt.Sprintf("root:x:0:\ncore:x:%d:\n", coreID()),
		"etc/kubernetes/kubelet.conf.d/99-simulated-hardware.conf": h.kubeletDropIn(),
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, name := range mountPoints[h.options.Image] {
		if err := os.WriteFile(filepath.Join(root, "usr/bin", name), nil, 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod(filepath.Join(root, "usr/bin/systemctl"), 0o755); err != nil { // embedded files have no mode
		return err
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(filepath.Join(root, coreHome), coreID(), coreID()); err != nil {
			return err
		}
	}
	return errors.Join(linkFolders(root), copyTools(root), copyNetworkFiles(root))
}

// makeFolder creates a directory with a mode, independently of the umask.
func makeFolder(path string, mode fs.FileMode) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	perm := mode.Perm()
	if mode&0o1000 != 0 {
		perm |= fs.ModeSticky
	}
	return os.Chmod(path, perm)
}

// linkFolders creates the links of a merged /usr and /var/run, and this machine's links for libraries, whose
// directories are mounted (inroot.sh).
func linkFolders(root string) error {
	links := map[string]string{"bin": "usr/bin", "sbin": "usr/sbin", "var/run": "../run"}
	for _, dir := range []string{"lib", "lib32", "lib64", "libx32"} {
		if target, err := os.Readlink("/" + dir); err == nil {
			links[dir] = target
		}
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			return err
		}
	}
	return nil
}

// copyTools copies the tools that this machine has. A unit that calls another tool fails, as on a host without it.
func copyTools(root string) error {
	for _, tool := range tools {
		path, err := exec.LookPath(tool)
		if err != nil {
			continue
		}
		if err := copyFile(path, filepath.Join(root, "usr/bin", tool), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// machineID returns the host's /etc/machine-id, which is the same for all images of the host.
func machineID(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:16])
}

// copyNetworkFiles copies this machine's name resolution, because the host shares its network.
func copyNetworkFiles(root string) error {
	for _, file := range []string{"etc/resolv.conf", "etc/hosts", "etc/nsswitch.conf"} {
		err := copyFile("/"+file, filepath.Join(root, file), 0o644)
		if errors.Is(err, fs.ErrNotExist) {
			err = os.WriteFile(filepath.Join(root, file), nil, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string, mode fs.FileMode) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}

// kubeletDropIn is the kubelet's configuration for this hardware: a machine that is shared with other hosts, without
// own cgroups. It is read last (kubelet --config-dir, in the order of the names).
func (h *Host) kubeletDropIn() string {
	return strings.NewReplacer(
		"PORT", fmt.Sprint(h.options.KubeletPort),
		"HEALTHZ", fmt.Sprint(h.options.HealthzPort),
	).Replace(kubeletDropIn)
}

const kubeletDropIn = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
# Hosts share the machine's network.
port: PORT
healthzPort: HEALTHZ
makeIPTablesUtilChains: false
# Hosts share the machine's kernel, memory and disk.
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
cgroupsPerQOS: false
enforceNodeAllocatable: []
localStorageCapacityIsolation: false
evictionHard:
  imagefs.available: 0%
  nodefs.available: 0%
  nodefs.inodesFree: 0%
# A host that is not run by root lives in a user namespace.
featureGates:
  KubeletInUserNamespace: true
`
