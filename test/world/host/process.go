package host

import (
	"context"
	_ "embed"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
)

// inRoot is a shell script that sets up mounts and changes the root.
//
//go:embed inroot.sh
var inRoot string

// isolated runs a program in new namespaces: its mounts and children are removed when it exits, and it is killed when
// this process exits. An unprivileged user runs it in a user namespace.
func isolated() *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{
		Cloneflags:   syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS,
		Unshareflags: syscall.CLONE_NEWNS,
		Pdeathsig:    syscall.SIGKILL,
	}
	if os.Geteuid() != 0 {
		attributes.Cloneflags |= syscall.CLONE_NEWUSER
		attributes.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attributes.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return attributes
}

// command returns a unit's program that runs inside the host's root.
func (b *boot) command(ctx context.Context, unit string, argv, env []string) *exec.Cmd {
	options := b.host.options
	arguments := []string{"-ec", inRoot, "inroot.sh", b.host.Root(), options.BinDir, options.Name}
	cmd := exec.CommandContext(ctx, "/bin/sh", slices.Concat(arguments, env, argv)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.SysProcAttr = isolated()
	cmd.Stdout = b.console.of(unit)
	cmd.Stderr = cmd.Stdout
	return cmd
}

// run runs a command and waits for it.
func run(cmd *exec.Cmd, started func()) error {
	cmd.WaitDelay = time.Second
	if err := process.Start(cmd); err != nil {
		return err
	}
	started()
	return cmd.Wait()
}
