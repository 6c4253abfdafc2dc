package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// tries runs a command until all of its packages have passed, or one has failed twice.
type tries struct {
	suites, command []string
	out             io.Writer

	packages map[string]bool // whether each passed in its last try
	flaky    []string
}

// run runs the command, and reports whether it failed in the end.
func (t *tries) run(ctx context.Context) (failed bool) {
	t.packages = map[string]bool{}
	before := map[string]result{} // failed in the previous try
	tried := map[string]bool{}    // failed in any try
	for next := [][]string{t.command}; ; {
		o, err := &output{}, error(nil)
		for _, command := range next {
			if len(before) > 0 {
				fmt.Fprintf(t.out, "\n=== once more: %s\n", strings.Join(command, " "))
			}
			err = errors.Join(err, t.try(ctx, command, o))
		}
		for _, r := range o.results {
			t.packages[r.path] = r.passed
		}
		now := o.failed()
		if err != nil && len(now) == 0 { // it failed before or after the tests
			now[""] = result{failures: []string{fmt.Sprintf("%s: %v", strings.Join(t.command, " "), err)}}
		}
		t.compare(before, now, o)
		again := slices.ContainsFunc(slices.Collect(maps.Keys(now)), func(path string) bool { return tried[path] })
		if len(now) == 0 || again || ctx.Err() != nil {
			return len(now) > 0 || err != nil
		}
		before = now
		for path := range now {
			tried[path] = true
		}
		next = t.next(now)
	}
}

// compare records as flaky what failed in the previous try and passed in this one.
func (t *tries) compare(before, now map[string]result, o *output) {
	ended := map[string]bool{"": true} // packages whose tests all ran to their end
	for _, r := range o.results {
		ended[r.path] = r.complete
	}
	for _, path := range slices.Sorted(maps.Keys(before)) {
		if !ended[path] {
			continue
		}
		for _, name := range before[path].failures {
			if !slices.Contains(now[path].failures, name) {
				t.flaky = append(t.flaky, shorten(path, name))
			}
		}
	}
}

// next returns the commands that run the failed packages again. Of suites in which only specs failed, those in the same
// files run again: specs of an ordered container need those before them.
func (t *tries) next(failed map[string]result) [][]string {
	paths := slices.Sorted(maps.Keys(failed))
	other := func(path string) bool { return !strings.Contains(path, "/test/") }
	if len(t.suites) == 0 || slices.ContainsFunc(paths, other) {
		return [][]string{t.command}
	}
	var commands [][]string
	for _, path := range paths {
		command := append(slices.Clone(t.suites), path)
		for _, file := range slices.Compact(slices.Sorted(slices.Values(failed[path].files))) {
			command = append(command, "-ginkgo.focus-file="+regexp.QuoteMeta(file))
		}
		commands = append(commands, command)
	}
	return commands
}

// patience is how long tests have after an interrupt to report how far they were.
const patience = 2 * time.Minute

// try runs a command, prints its output and parses it. If it fails, it prints the output of the failed tests again.
func (t *tries) try(ctx context.Context, command []string, o *output) error {
	excerpt := &excerpt{}
	program := exec.CommandContext(ctx, command[0], command[1:]...)
	program.WaitDelay = patience
	program.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	program.Cancel = func() error { return syscall.Kill(-program.Process.Pid, syscall.SIGINT) }
	reader, writer := io.Pipe()
	program.Stdout, program.Stderr = writer, writer
	read := make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewReader(reader)
		for {
			text, err := lines.ReadString('\n')
			_, _ = io.WriteString(t.out, text)
			o.line(text)
			excerpt.line(text)
			if err != nil {
				return
			}
		}
	}()
	err := program.Run()
	_ = writer.Close()
	<-read
	if ctx.Err() != nil && program.Process != nil {
		_ = syscall.Kill(-program.Process.Pid, syscall.SIGKILL) // what has ignored the interrupt
		fmt.Fprintf(t.out, "\n=== interrupted: %v\n", context.Cause(ctx))
	}
	if err != nil {
		fmt.Fprintf(t.out, "\n=== what failed in %q\n", strings.Join(command, " "))
		excerpt.print(t.out)
	}
	return err
}
