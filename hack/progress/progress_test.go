package progress

import (
	"bufio"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestEndsWithMake verifies that a command that make runs with progress.sh ends if only make gets a signal. The command
// keeps a pipe open and sleeps for a long time.
func TestEndsWithMake(t *testing.T) {
	script, err := filepath.Abs("../progress.sh")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(script); err != nil { // go test also records that the result depends on this file
		t.Fatal(err)
	}
	// If the tests run in the background, SIGINT can be ignored, and make would inherit that.
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, os.Interrupt)
	t.Cleanup(func() { signal.Stop(heard) })
	for _, interrupt := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(interrupt.String(), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			pipe, makefile := filepath.Join(dir, "pipe"), filepath.Join(dir, "Makefile")
			if err := syscall.Mkfifo(pipe, 0o600); err != nil {
				t.Fatal(err)
			}
			work := "exec 3>" + pipe + "; echo started >&3; exec sleep 600"
			if err := os.WriteFile(makefile, []byte("SHELL := /bin/bash\nall:\n\t@"+script+" sleep wait bash -c '"+work+"'\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			var output strings.Builder
			command := exec.Command("make", "-f", makefile)
			command.Stderr = &output
			command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) })
			open, err := os.Open(pipe)
			if err != nil {
				t.Fatal(err)
			}
			defer open.Close()
			reader := bufio.NewReader(open)
			if line, err := reader.ReadString('\n'); err != nil || line != "started\n" {
				t.Fatalf("the command said %q, %v", line, err)
			}
			if err := syscall.Kill(command.Process.Pid, interrupt); err != nil {
				t.Fatal(err)
			}
			if rest, err := reader.ReadString('\n'); rest != "" || err == nil {
				t.Errorf("the command said %q, want it to end", rest)
			}
			if err := command.Wait(); err == nil {
				t.Error("make succeeded, want it to end by the signal")
			}
			if want := "What to do: signal 15 ended it: run the same command again"; !strings.Contains(output.String(), want) {
				t.Errorf("make printed %q, want %q", output.String(), want)
			}
		})
	}
}
