// Package process runs programs that end with the one that started them, however it ends, and that say why when they
// fail.
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
	// startTimeout is how long a program may take to become ready: seconds on a quiet machine, far longer on a busy
	// one.
	startTimeout = 2 * time.Minute
	// stopTimeout is how long a program may take to end by itself before it is killed. Nothing it holds is worth more.
	stopTimeout = 5 * time.Second
	// tail is how much of a failed program's log its error shows, in lines.
	tail = 20
)

// Process is one running program. A nil Process has never run.
type Process struct {
	command *exec.Cmd
	logPath string
	exited  chan struct{} // closed when the program has ended
}

// Start starts a command that may have Pdeathsig set, from one operating system thread that lives as long as this
// program: the kernel sends that signal when the thread that started the command ends, which for any other thread of a
// Go program may be at any time.
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

// Launch starts a program that ends with this one, however this one ends. Its output goes to <name>.log in dir.
func Launch(dir, path string, args ...string) (*Process, error) {
	name := filepath.Base(path)
	p := &Process{logPath: filepath.Join(dir, name+".log"), exited: make(chan struct{})}
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.command = exec.Command(path, args...)
	p.command.Dir, p.command.Stdout, p.command.Stderr = dir, log, log
	// Its own process group keeps the terminal's Ctrl-C from ending it before those who use it.
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := Start(p.command); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(p.exited)
		_ = p.command.Wait() // How it ended is in its ProcessState.
	}()
	return p, nil
}

// WaitFor polls until ready says so. The error, when the program ends or time is up before, says what was last wrong
// and shows the end of the program's log.
func (p *Process) WaitFor(ctx context.Context, ready func(context.Context) error) error {
	last := errors.New("not asked yet")
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, startTimeout, true, func(ctx context.Context) (bool, error) {
		if !p.Running() {
			return false, fmt.Errorf("it ended: %s", p.command.ProcessState)
		}
		last = ready(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%s did not become ready: %w; last answer: %w; the end of %s:\n%s",
			filepath.Base(p.command.Path), err, last, p.logPath, p.LogTail())
	}
	return nil
}

// Running says whether the program has not ended.
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

// Stop ends the program and returns when it is gone.
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

// Kill ends the program at once, as a crash does, and returns when it is gone.
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

// PeakMemory is the most memory that the program has held at once, in bytes: what Linux calls its high water mark.
func (p *Process) PeakMemory() (int, error) { return p.memory("VmHWM") }

// Memory is what the program holds now, in bytes: what Linux calls its resident set.
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

// LogTail is the end of the program's log.
func (p *Process) LogTail() string {
	content, err := os.ReadFile(p.logPath)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(lines[max(0, len(lines)-tail):], "\n")
}

// PortTaken says whether the program ended because another program had its port.
func (p *Process) PortTaken() bool {
	return !p.Running() && strings.Contains(p.LogTail(), "address already in use")
}
