package host

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// deploy writes a new image and the user data, as a provisioner does.
func (h *Host) deploy(userData []byte) error {
	if err := h.writeImage(); err != nil {
		return err
	}
	// Ignition caches the fetched configuration between its stages. A new disk has no cache.
	for _, name := range []string{"ignition.json", "state", "neednet"} {
		if err := os.RemoveAll(filepath.Join(h.options.Dir, name)); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(h.options.Dir, "pointer.ign"), userData, 0o600)
}

// ignite runs the stages of the real Ignition that need no disks and boot loader: fetch and files.
func (b *boot) ignite() error {
	b.host.happened(IgnitionStarted, "")
	for _, stage := range []struct {
		name string
		done Step
	}{{"fetch", ConfigFetched}, {"files", FilesWritten}} {
		if err := run(b.ignition(stage.name), func() {}); err != nil {
			return fmt.Errorf("ignition, stage %s: %w", stage.name, err)
		}
		b.host.happened(stage.done, "")
	}
	return nil
}

// sysroot is the path of the host's root for Ignition. All users must be able to access it: Ignition writes a user's
// SSH keys as that user, which can lack access to the host's directory.
const sysroot = "/mnt"

func (b *boot) ignition(stage string) *exec.Cmd {
	dir := b.host.options.Dir
	cmd := exec.CommandContext(b.ctx, "/bin/sh", "-ec", `mount --bind "$1" "$2"; shift 2; exec "$@"`, "sh", b.host.Root(), sysroot,
		filepath.Join(b.host.options.BinDir, "ignition"),
		"-platform", "file", "-stage", stage, "-root", sysroot, "-log-to-stdout",
		"-config-cache", filepath.Join(dir, "ignition.json"),
		"-state-file", filepath.Join(dir, "state"),
		"-neednet", filepath.Join(dir, "neednet"))
	cmd.Env = append(os.Environ(), "IGNITION_CONFIG_FILE="+filepath.Join(dir, "pointer.ign"))
	cmd.SysProcAttr = isolated()
	cmd.Stdout = b.console.of("ignition")
	cmd.Stderr = cmd.Stdout
	return cmd
}
