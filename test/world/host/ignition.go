package host

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// deploy writes a fresh image and the user data, as a provisioner does.
func (h *Host) deploy(userData []byte) error {
	if err := h.writeImage(); err != nil {
		return err
	}
	// Ignition keeps what it fetched between its stages: a new disk begins without.
	for _, name := range []string{"ignition.json", "state", "neednet"} {
		if err := os.RemoveAll(filepath.Join(h.options.Dir, name)); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(h.options.Dir, "pointer.ign"), userData, 0o600)
}

// ignite runs the stages of the real Ignition that need no disks and no boot loader: fetch and files.
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

// sysroot is where Ignition sees the host's root. It must be reachable for every user: Ignition writes a user's SSH
// keys as that user, who may have no way to the host's folder.
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
