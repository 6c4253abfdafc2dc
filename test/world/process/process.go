// Package process runs programs that are killed when their parent process exits, and reports the logs of programs that
// do not become ready.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// startTimeout is the time in which a program must become ready. It takes seconds on an idle machine, and much
	// longer on a busy machine.
	startTimeout = 5 * time.Minute
	// stopTimeout is the time in which a program must exit before it is killed.
	stopTimeout = 5 * time.Second
	// tail is the number of log lines in the error of a failed program.
	tail = 20
)

// Process is a running program. A nil Process has not been started.
type Process struct {
	command *exec.Cmd
	logPath string
	exited  chan struct{} // closed when the program has exited
}

// Start starts a command that can have Pdeathsig set, from an operating system thread that exists as long as this
// program. The kernel sends Pdeathsig when the thread that started the command exits. Go can end its other threads at
// any time.
func Start(command *exec.Cmd) error {
	started := make(chan error)
	launcher() <- func() { started <- command.Start() }
	return <-started
}

var launcher = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for start := range work {
			start()
		}
	}()
	return work
})

// Launch starts a program that is killed when this process exits, with variables in addition to those of this process.
// Its output is in <name>.log in dir.
func Launch(dir string, env []string, path string, args ...string) (*Process, error) {
	name := filepath.Base(path)
	p := &Process{logPath: filepath.Join(dir, name+".log"), exited: make(chan struct{})}
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.command = exec.Command(path, args...)
	p.command.Env = append(os.Environ(), env...)
	p.command.Dir, p.command.Stdout, p.command.Stderr = dir, log, log
	// In its own process group it is not interrupted by the terminal's Ctrl-C before the programs that use it.
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := Start(p.command); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(p.exited)
		_ = p.command.Wait() // the exit status is in ProcessState
	}()
	return p, nil
}

// WaitFor polls until ready returns nil. If the program exits or times out, the error has the last error of ready and
// the end of the program's log.
func (p *Process) WaitFor(ctx context.Context, ready func(context.Context) error) error {
	last := errors.New("not checked yet")
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, startTimeout, true, func(ctx context.Context) (bool, error) {
		if !p.Running() {
			return false, fmt.Errorf("it exited: %s", p.command.ProcessState)
		}
		last = ready(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%s did not become ready: %w; last error: %w; end of %s:\n%s",
			filepath.Base(p.command.Path), err, last, p.logPath, p.LogTail())
	}
	return nil
}

// Running reports whether the program is running.
func (p *Process) Running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Stop terminates the program and waits until it has exited.
func (p *Process) Stop() error {
	if !p.Running() {
		return nil
	}
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(stopTimeout):
	}
	return p.Kill()
}

// Kill kills the program with SIGKILL and waits until it has exited.
func (p *Process) Kill() error {
	if !p.Running() {
		return nil
	}
	if err := p.command.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.exited
	return nil
}

// PeakMemory returns the program's peak resident set size in bytes.
func (p *Process) PeakMemory() (int, error) { return p.memory("VmHWM") }

// Memory returns the program's resident set size in bytes.
func (p *Process) Memory() (int, error) { return p.memory("VmRSS") }

func (p *Process) memory(what string) (int, error) {
	path := fmt.Sprintf("/proc/%d/status", p.command.Process.Pid)
	content, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	_, text, _ := strings.Cut(string(content), what+":")
	var kilobytes int
	if _, err := fmt.Sscanf(text, "%d kB", &kilobytes); err != nil {
		return 0, fmt.Errorf("%s: %s: %w", path, what, err)
	}
	return kilobytes << 10, nil
}

// LogTail returns the last lines of the program's log.
func (p *Process) LogTail() string {
	content, err := os.ReadFile(p.logPath)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(lines[max(0, len(lines)-tail):], "\n")
}

// PortTaken reports whether the program exited because its port was in use.
func (p *Process) PortTaken() bool {
	return !p.Running() && strings.Contains(p.LogTail(), "address already in use")
}
