package suites

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

// longest are the packages that run first.
var longest = []string{"test/suites/integration", "test/suites/e2e"}

// suites returns a command that runs a script in place of go test. $1 is the first package.
func suites(t *testing.T, script string) *exec.Cmd {
	t.Helper()
	if _, err := os.Stat("../suites.sh"); err != nil { // go test also records that the result depends on this file
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "fake")
	if err := os.WriteFile(file, []byte("#!/bin/bash\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("hack/suites.sh", "2", strings.Join(longest, " "), file)
	command.Dir = "../.."
	return command
}

func TestRunsEachPackageOnce(t *testing.T) {
	output, err := suites(t, `printf '%s\n' "$@"`).Output()
	if err != nil {
		t.Fatal(err)
	}
	got := string(output)
	for _, part := range []string{"./test/demo\n", "./test/suites/move\n", "./" + longest[0] + "\n", "./" + longest[1] + "\n"} {
		if strings.Count(got, part) != 1 {
			t.Errorf("%q is not once in %s", part, got)
		}
	}
	if first := "==> begin " + strings.Join(longest, "\n==> begin ") + "\n"; !strings.HasPrefix(got, first) {
		t.Errorf("%s do not begin first: %s", longest, got)
	}
}

func TestRunsSeveralAtATime(t *testing.T) {
	folder := t.TempDir()
	// Each waits until another one has begun.
	output, err := suites(t, `touch `+folder+`/$$; until (($(ls `+folder+` | wc -l) >= 2)); do sleep 0.01; done`).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
}

func TestFailsIfOneFails(t *testing.T) {
	for name, script := range map[string]string{
		"the first one": `[[ $1 != ./` + longest[0] + ` ]]`, "another one": `[[ $1 != ./test/suites/move ]]`,
	} {
		if err := suites(t, script).Run(); err == nil {
			t.Errorf("%s failed, and the script succeeded", name)
		}
	}
}

// TestEndsWithSignal verifies that all commands end by SIGINT if only the script gets a signal.
func TestEndsWithSignal(t *testing.T) {
	// If the tests run in the background, SIGINT can be ignored, and the script would inherit that.
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, os.Interrupt)
	t.Cleanup(func() { signal.Stop(heard) })
	for _, interrupt := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		pipe := filepath.Join(t.TempDir(), "pipe")
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
		command := suites(t, `exec 3>`+pipe+`; trap 'echo interrupted >&3; exit 1' INT; echo started >&3; while :; do sleep 0.1; done`)
		command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		opened, err := os.Open(pipe)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(opened)
		for range 2 {
			if !lines.Scan() || lines.Text() != "started" {
				t.Fatalf("a command printed %q, want started", lines.Text())
			}
		}
		if err := syscall.Kill(command.Process.Pid, interrupt); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if !lines.Scan() || lines.Text() != "interrupted" {
				t.Fatalf("after %s a command printed %q, want interrupted", interrupt, lines.Text())
			}
		}
		if err := command.Wait(); err == nil {
			t.Error("the script succeeded, want it to fail")
		}
		_ = opened.Close()
	}
}
