package baremetal

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
)

// bootScript is a shell script that becomes the first process of a host.
//
//go:embed boot.sh
var bootScript string

// powerButton is the signal on which systemd powers off: SIGRTMIN+4, as glibc counts.
const powerButton = syscall.Signal(34 + 4)

// power is the time of a host from power on to power off. It contains one boot or, if the host reboots, several.
type power struct {
	host    *Host
	ctx     context.Context
	cancel  context.CancelFunc
	console *console
	// cutAt is the step at which the power is cut, or empty.
	cutAt Step
	// off is closed when all processes have exited and everything is removed. The errors are set before that: of a boot
	// that failed, and of the removal.
	off             chan struct{}
	err, cleanupErr error

	mu    sync.Mutex // guards the fields below
	first *os.Process
	// inside reports whether the first process has left this machine's root file system.
	inside bool
}

// newPower returns the time of a host until it is off, which has not started yet.
func newPower(ctx context.Context, h *Host, console *console, cutAt Step) *power {
	p := &power{host: h, console: console, cutAt: cutAt, off: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(ctx)
	return p
}

// run boots until the host is off.
func (p *power) run() {
	defer close(p.off)
	defer p.console.Close()
	defer p.cancel()
	for {
		p.host.happened(PoweredOn, "")
		reboot, err := p.boot()
		if err != nil && p.ctx.Err() == nil {
			p.err = p.host.errorf("%w\n%s", err, p.console.lastLines())
		}
		if err != nil || !reboot || p.ctx.Err() != nil || p.cleanupErr != nil {
			break
		}
	}
	detail := ""
	if p.err != nil {
		detail = p.err.Error()
	}
	p.host.happened(PoweredOff, detail)
}

// boot boots the host and returns when its first process has exited. It reports whether the host wants to reboot.
func (p *power) boot() (reboot bool, err error) {
	h := p.host
	h.mu.Lock()
	h.boots++
	boots := h.boots
	h.mu.Unlock()
	group := fmt.Sprintf("%s%d-%d", h.rack.ControlGroupPrefix(), h.number, boots)
	defer func() { p.cleanupErr = errors.Join(p.cleanupErr, removeGroup(h.rack.all, group)) }()
	if err := createGroup(h.rack.all, group); err != nil {
		return false, fmt.Errorf("control group: %w", err)
	}

	steps, stepsWriter, err := os.Pipe()
	if err != nil {
		return false, err
	}
	defer steps.Close()
	if err := p.console.open(); err != nil {
		return false, errors.Join(err, stepsWriter.Close())
	}
	defer p.console.drain()
	command := p.command(group)
	command.Stdout, command.Stderr, command.ExtraFiles = p.console.tty, p.console.tty, []*os.File{stepsWriter}
	stdin, err := command.StdinPipe()
	if err == nil {
		err = process.Start(command)
	}
	_ = stepsWriter.Close()
	if err != nil {
		return false, err
	}
	p.setFirst(command.Process)
	plugged := make(chan error, 1)
	stop := context.AfterFunc(p.ctx, func() { _ = command.Process.Kill() })
	defer stop()
	go func() { plugged <- h.connect(p.ctx, command.Process.Pid, boots, stdin) }()
	problem := p.readSteps(steps)
	exited := make(chan struct{})
	go thawDying(h.rack.all, group, command.Process.Pid, exited)
	_ = command.Wait() // the exit status is in ProcessState
	close(exited)
	p.setFirst(nil)
	plugErr := errors.Join(<-plugged, h.disconnect(p.ctx, boots))
	if p.ctx.Err() != nil {
		return false, nil
	}
	// In a PID namespace, the kernel kills the first process with one of these signals when it calls reboot(2).
	status := command.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case status.Signaled() && status.Signal() == syscall.SIGHUP:
		return true, nil
	case status.Signaled() && status.Signal() == syscall.SIGINT:
		return false, nil
	case problem != "":
		return false, errors.New(problem)
	}
	return false, errors.Join(fmt.Errorf("the boot failed: %s", command.ProcessState), plugErr)
}

func (p *power) command(group string) *exec.Cmd {
	h := p.host
	var groups []string
	for _, hierarchy := range h.rack.all {
		groups = append(groups, strings.Join([]string{hierarchy.path + "/" + group, hierarchy.kind, hierarchy.path, hierarchy.options}, " "))
	}
	command := exec.Command("/bin/bash", "-c", bootScript)
	command.Env = []string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin",
		"NAME=" + h.options.Name, "ROOTFS=" + h.rack.rootfs + "/root", "DISK=" + h.disk(), "UUID=" + h.uuid(),
		"ADDRESS=" + h.Address() + networkBits, "GATEWAY=" + h.rack.Address(),
		"IGNITION=" + h.rack.binDir + "/ignition", "CGROUPS=" + strings.Join(groups, "\n"), "PROGRAMS=" + h.programList(),
		"STOP_AT=" + string(p.cutAt),
	}
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:   syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWNET,
		Unshareflags: syscall.CLONE_NEWNS,
		Pdeathsig:    syscall.SIGKILL,
		Setsid:       true,
	}
	return command
}

// readSteps records the steps that the boot script reports until it becomes systemd or fails. It returns its message if
// it failed.
func (p *power) readSteps(steps io.Reader) (problem string) {
	lines := bufio.NewScanner(steps)
	for lines.Scan() {
		switch step := Step(lines.Text()); step {
		case IgnitionStarted, ConfigFetched, FilesWritten, UnitsStarted:
			if step == UnitsStarted {
				p.setInside()
			}
			p.host.happened(step, "")
			if step == p.cutAt {
				p.cancel()
			}
		default:
			problem = lines.Text()
		}
	}
	return problem
}

// press presses the power button.
func (p *power) press() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first != nil {
		_ = p.first.Signal(powerButton)
	}
}

// pid returns the first process if programs can be run beside it, else 0.
func (p *power) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first == nil || !p.inside {
		return 0
	}
	return p.first.Pid
}

func (p *power) setInside() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inside = true
}

func (p *power) setFirst(first *os.Process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.first, p.inside = first, false
}
