// Package command runs programs of the host, such as systemctl and useradd, with a time limit, limited output, and
// without the environment of the agent. It knows nothing of what the programs do.
//
// Arguments are visible to every user of the host, and are part of errors: pass secrets by standard input. What a
// program writes is not part of errors: it can have secrets, such as the address of a repository with a password, or
// the output of a script, and errors are reported to the cluster. Detail adds it for the log of the host.
package command

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
)

const (
	// DefaultTimeout is how long a program may run. systemd gives up on most of its own jobs before that.
	DefaultTimeout = 5 * time.Minute

	// grace is how long a program may take to end after SIGTERM, before SIGKILL.
	grace = 5 * time.Second
	// maxOutput is the maximum size of a program's standard output, in bytes.
	maxOutput = 1 << 20
	// maxMessage and maxArguments are the maximum sizes of what an error shows, in bytes.
	maxMessage   = 1 << 10
	maxArguments = 256
)

// directories are where programs are, in the order in which they are searched. Those for programs that an administrator
// installed are not among them: they are writable on hosts whose /usr is not.
var directories = []string{"/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// ErrNotFound is the reason of an error if the host has no such program.
var ErrNotFound = exec.ErrNotFound

// ErrTooMuchOutput is the reason of an error if a program wrote more than it may.
var ErrTooMuchOutput = errors.New("it wrote too much output")

// Runner runs programs. The zero value is ready for use.
type Runner struct {
	// Timeout is how long a program may run, by default DefaultTimeout. A deadline of the context also ends it.
	Timeout time.Duration
	// Root is the root directory of the host, by default that of this process. Another one needs the right to chroot.
	Root string
}

// Error says how a program failed.
type Error struct {
	// Command is the name of the program and its arguments, shortened.
	Command string
	// ExitCode is that of the program, or -1 if it did not start or was killed.
	ExitCode int
	// Message is the end of what the program wrote to standard error, without line breaks at its ends. It must not
	// leave the host.
	Message string
	// Reason is why it failed: an *exec.ExitError, ErrTooMuchOutput, or the error of a context.
	Reason error
}

// Error returns what was run, and why it failed.
func (e *Error) Error() string { return e.Command + ": " + e.Reason.Error() }

// Unwrap returns why the program failed.
func (e *Error) Unwrap() error { return e.Reason }

// ExitCode returns the exit code of the program that an error is about, or -1.
func ExitCode(err error) int {
	if failed := (*Error)(nil); errors.As(err, &failed) {
		return failed.ExitCode
	}
	return -1
}

// Find returns the path of a program on the host. The error matches exec.ErrNotFound if there is none.
func (r Runner) Find(name string) (string, error) {
	candidates := []string{name}
	if !strings.Contains(name, "/") {
		candidates = nil
		for _, directory := range directories {
			candidates = append(candidates, directory+"/"+name)
		}
	}
	for _, candidate := range candidates {
		found, err := os.Stat(filepath.Join("/", r.Root, candidate))
		if err == nil && found.Mode().IsRegular() && found.Mode()&0o111 != 0 {
			return candidate, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			return "", err
		}
	}
	return "", fmt.Errorf("the host has no program %s: %w", name, exec.ErrNotFound)
}

// Run runs a program and returns its standard output, also if the program fails. It ends the program with all processes
// of its group if it takes too long or the context ends, and the processes that it leaves behind in its group in any
// case. Errors of programs that ran are of type *Error.
func (r Runner) Run(ctx context.Context, name string, arguments ...string) ([]byte, error) {
	return r.RunWithInput(ctx, nil, name, arguments...)
}

// RunWithInput is like Run, and writes the input to the standard input of the program. It never shows the input.
func (r Runner) RunWithInput(ctx context.Context, input []byte, name string, arguments ...string) ([]byte, error) {
	program, err := r.Find(name)
	if err != nil {
		return nil, err
	}
	timeout := cmp.Or(r.Timeout, DefaultTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("it did not end within %s: %w", timeout, context.DeadlineExceeded))
	defer cancel()
	if err := context.Cause(ctx); err != nil {
		return nil, &Error{Command: describe(name, arguments), ExitCode: -1, Reason: err}
	}
	output, messages := &head{}, &tail{}
	cmd := &exec.Cmd{
		Path: program, Args: append([]string{program}, arguments...), Dir: "/",
		Env:    []string{"PATH=" + strings.Join(directories, ":"), "LC_ALL=C"},
		Stdout: output, Stderr: messages,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Chroot: r.Root},
		// Daemons outside of the group can keep the pipes open.
		WaitDelay: grace,
	}
	if input != nil {
		cmd.Stdin = bytes.NewReader(input)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	stopped := supervise(ctx, cmd.Process.Pid)
	err = cmd.Wait()
	switch {
	case stopped != nil:
		err = stopped
	case output.isOver():
		err = ErrTooMuchOutput
	case errors.Is(err, exec.ErrWaitDelay):
		err = nil
	}
	if err != nil {
		return output.bytes(), &Error{Command: describe(name, arguments), ExitCode: cmd.ProcessState.ExitCode(), Message: messages.String(), Reason: err}
	}
	return output.bytes(), nil
}

// supervise returns when a process has ended, but before anyone waited for it: until then its ID, which is that of its
// group, can't be that of other processes. It ends the process early, and returns why, if the context ends.
func supervise(ctx context.Context, pid int) (stopped error) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
		}
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		stopped = context.Cause(ctx)
		_ = unix.Kill(-pid, unix.SIGTERM)
		select {
		case <-ended:
		case <-time.After(grace):
		}
	}
	_ = unix.Kill(-pid, unix.SIGKILL)
	<-ended
	return stopped
}

// Detail returns the text of an error, with what the programs wrote whose errors it has. It must not leave the host.
func Detail(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	for _, failed := range errorsIn(err) {
		if failed.Message != "" {
			text = strings.ReplaceAll(text, failed.Error(), failed.Error()+": "+failed.Message)
		}
	}
	return text
}

// errorsIn returns the errors of programs among an error and those that it wraps.
func errorsIn(err error) (found []*Error) {
	switch err := err.(type) { //nolint:errorlint // it unwraps them itself
	case *Error:
		return []*Error{err}
	case interface{ Unwrap() error }:
		return errorsIn(err.Unwrap())
	case interface{ Unwrap() []error }:
		for _, one := range err.Unwrap() {
			found = append(found, errorsIn(one)...)
		}
	}
	return found
}

// describe returns a command for errors.
func describe(name string, arguments []string) string {
	return excerpt.Of(strings.Join(append([]string{name}, arguments...), " "), maxArguments)
}
