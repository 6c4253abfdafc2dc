// Command retry runs a command with tests, and then tries the failed packages once again, because a shared machine can
// stall for longer than a spec waits. A test that passes only the second time is flaky. It is counted and named, so
// retries hide nothing.
//
//	retry -report FILE [-suites 'go test -v -count 1'] [-limit 1h] -- make test
//	retry -report FILE
//
// The first form runs a command and adds the results to the report. It can be used several times. After the time limit,
// it interrupts the command, so that the tests which were running report how far they were. The second form prints the
// report:
//
//	packages: 81 passed, 0 failed
//	flaky: 1
//	  test/suites/integration: A boot can be followed on its PoolbootConfig
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	file := flag.String("report", "", "file of the report, which is read, added to and written")
	suites := flag.String("suites", "", "the command that runs failed packages under test/ again, which are added to it; "+
		"without it, and for other packages, the whole command runs again: go test remembers the packages that passed")
	limit := flag.Duration("limit", 24*time.Hour, "the time for all tries")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeoutCause(ctx, *limit, fmt.Errorf("the tests take longer than %s", *limit))
	failed, err := run(ctx, *file, strings.Fields(*suites), flag.Args())
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "retry:", err)
	}
	if err != nil || failed {
		os.Exit(1)
	}
}

// run runs a command and adds its results to a report. Without a command, it prints the report.
func run(ctx context.Context, file string, suites, command []string) (failed bool, err error) {
	r, err := readReport(file)
	if err != nil {
		return false, err
	}
	if len(command) == 0 {
		r.print(os.Stdout)
		return false, nil
	}
	t := &tries{suites: suites, command: command, out: os.Stdout}
	failed = t.run(ctx)
	r.add(t)
	return failed, r.write(file)
}
