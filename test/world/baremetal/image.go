package baremetal

import (
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

// Image is the operating system on a host's disk.
type Image string

const (
	// KubeletImage has the kubelet's binary but no unit for it: the user data must bring one.
	KubeletImage Image = "kubelet"
	// KubeadmImage has kubelet, kubeadm and the kubelet unit that Kubernetes' own packages install with kubeadm.
	KubeadmImage Image = "kubeadm"
	// NodeImage is KubeadmImage with kube-proxy and kube-router: Services, Pods that reach those of other Nodes, and
	// NetworkPolicies. Their units are enabled and need the files kube-proxy.conf and kube-router.conf in
	// /etc/kubernetes, which are kubeconfigs.
	NodeImage Image = "node"
	// ControlPlaneImage is KubeadmImage with cloud-init instead of Ignition, and the container images of a control
	// plane.
	ControlPlaneImage Image = "control-plane"
)

// The files of images, in addition to the root file system that all images share.
//
//go:embed all:image
var imageFiles embed.FS

// programs are the programs that are not in Debian, and directories of programs, by their path on the host. They are
// mounted read-only from this machine's bin directory. runc mounts its directory as a layer, where it would not see a
// file that is mounted.
var programs = map[Image]map[string]string{
	KubeletImage: {
		"/usr/bin/kubelet": "kubelet", "/opt/containerd/bin": "containerd", "/opt/cni/bin": "cni", "/usr/share/containerd/pause.tar": "pause.tar",
	},
	KubeadmImage:      {"/usr/bin/kubeadm": "kubeadm"},
	NodeImage:         {"/usr/bin/kube-proxy": "kube-proxy", "/usr/bin/kube-router": "kube-router"},
	ControlPlaneImage: {"/usr/share/containerd/control-plane.tar": "control-plane.tar"},
}

// parts returns the images that an image consists of.
func (i Image) parts() []Image {
	switch i {
	case KubeletImage:
		return []Image{i}
	case KubeadmImage:
		return []Image{KubeletImage, i}
	default:
		return []Image{KubeletImage, KubeadmImage, i}
	}
}

// Deploy writes an image and user data to the disk, as a provisioner does. The next boot runs Ignition or cloud-init.
// The host must be off.
func (h *Host) Deploy(image Image, userData []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isOn() {
		return h.errorf("the image can't be written while the host is on")
	}
	h.image = image
	if err := h.writeDisk(userData); err != nil {
		return h.errorf("write the image: %w", err)
	}
	return nil
}

func (h *Host) writeDisk(userData []byte) error {
	for _, folder := range []string{"upper", "work", "boot", "containerd"} {
		if err := os.RemoveAll(filepath.Join(h.disk(), folder)); err != nil {
			return err
		}
	}
	for _, folder := range []string{"root", "upper", "work", "boot/upper", "boot/work", "containerd"} {
		if err := os.MkdirAll(filepath.Join(h.disk(), folder), 0o755); err != nil {
			return err
		}
	}
	upper := filepath.Join(h.disk(), "upper")
	for _, image := range h.image.parts() {
		for _, program := range programs[image] {
			if err := h.rack.checkProgram(program); err != nil {
				return err
			}
		}
		files, err := fs.Sub(imageFiles, "image/"+string(image))
		if err != nil {
			return err
		}
		if err := os.CopyFS(upper, files); err != nil {
			return err
		}
	}
	kernelArguments := os.WriteFile(filepath.Join(h.disk(), "boot", "upper", "kernel-arguments.cfg"), []byte("set kernel_arguments='quiet'\n"), 0o644)
	if h.image == ControlPlaneImage {
		return errors.Join(kernelArguments, h.writeConfigDrive(userData))
	}
	return errors.Join(
		kernelArguments,
		os.WriteFile(filepath.Join(h.disk(), "boot", "upper", "ignition.firstboot"), nil, 0o644),
		os.WriteFile(filepath.Join(h.disk(), "user-data"), userData, 0o600),
	)
}

// writeConfigDrive writes the user data and the metadata that Metal3 gives to hosts by default where cloud-init finds
// the content of a config drive.
func (h *Host) writeConfigDrive(userData []byte) error {
	metaData, err := json.Marshal(map[string]string{
		"name": h.options.Name, "local-hostname": h.options.Name, "hostname": h.options.Name, "uuid": cmp.Or(h.options.MetaDataID, h.uuid()),
	})
	if err != nil {
		return err
	}
	drive := filepath.Join(h.disk(), "upper/var/lib/cloud/seed/config_drive/openstack/latest")
	return errors.Join(
		os.MkdirAll(drive, 0o755),
		os.WriteFile(filepath.Join(drive, "meta_data.json"), metaData, 0o644),
		os.WriteFile(filepath.Join(drive, "user_data"), userData, 0o600),
	)
}

// ReplaceDisk gives the host an empty disk with a size in bytes. Without a size (0), it is as large as that of this
// machine, as the first disk of every host. The host must be off. Rack.Close removes disks with a size, also when this
// process is killed.
func (h *Host) ReplaceDisk(ctx context.Context, size int64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isOn() {
		return h.errorf("the disk can't be replaced while the host is on")
	}
	if h.hasSize {
		if err := run(ctx, "", "umount", h.disk()); err != nil {
			return h.errorf("%w", err)
		}
		h.hasSize = false
	}
	if err := os.RemoveAll(h.disk()); err != nil {
		return h.errorf("%w", err)
	}
	if size == 0 {
		return nil
	}
	if err := os.MkdirAll(h.disk(), 0o755); err != nil {
		return h.errorf("%w", err)
	}
	if _, err := io.WriteString(h.rack.stdin, h.disk()+"\n"); err != nil {
		return h.errorf("report the disk to the keeper: %w", err)
	}
	if err := run(ctx, "", "mount", "-t", "tmpfs", "-o", fmt.Sprintf("mode=755,size=%d", size), "tmpfs", h.disk()); err != nil {
		return h.errorf("%w", err)
	}
	h.hasSize = true
	return nil
}

// disk is the directory with the host's disk.
func (h *Host) disk() string { return filepath.Join(h.options.Dir, "disk") }

// programList returns the programs of the host's image and its folders, a line for each: its path on this machine and
// on the host. The program that changes kernel arguments is that of the image of this repository.
func (h *Host) programList() string {
	lines := []string{sourcetree.Path("hack", "image", "dracut", "31poolboot-grub", "ignition-kargs-helper.sh") + " /usr/sbin/ignition-kargs-helper"}
	for _, image := range h.image.parts() {
		for path, name := range programs[image] {
			lines = append(lines, filepath.Join(h.rack.binDir, name)+" "+path)
		}
	}
	for path, folder := range h.options.Folders {
		lines = append(lines, folder+" "+path)
	}
	return strings.Join(lines, "\n")
}

// uuid returns the hardware's ID, from which systemd makes the machine ID of every image on the host.
func (h *Host) uuid() string {
	sum := sha256.Sum256([]byte(h.options.Name))
	text := hex.EncodeToString(sum[:16])
	return fmt.Sprintf("%s-%s-%s-%s-%s", text[:8], text[8:12], text[12:16], text[16:20], text[20:])
}
