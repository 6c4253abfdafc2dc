package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Shortened output of go test and Ginkgo.
const (
	module = "example.com/poolboot/"
	okPool = "ok  \t" + module + "bootstrap/pool\t0.1s\n"
	okE2E  = "ok  \t" + module + "test/suites/e2e\t9.1s\n"

	specFails = "=== RUN   TestEndToEnd\n" +
		"\x1b[38;5;9m[FAILED]\x1b[0m Timed out after 120.0s.\n------------------------------\n" +
		"\x1b[1mSummarizing 2 Failures:\x1b[0m\n" +
		"  \x1b[38;5;9m[FAIL]\x1b[0m \x1b[0mA boot \x1b[1m[It] ends in its pool\x1b[0m\n  /src/boot_test.go:9\n" +
		"  \x1b[38;5;214m[TIMEDOUT]\x1b[0m A token \x1b[1m[It] is revoked\x1b[0m\n  /src/token_test.go:9\n\n" +
		"Ran 9 of 9 Specs in 9.1 seconds\nFAIL! -- 7 Passed | 2 Failed | 0 Pending | 0 Skipped\n" +
		"--- FAIL: TestEndToEnd (9.1s)\nFAIL\nFAIL\t" + module + "test/suites/e2e\t9.1s\n"
	oneSpecFails = "Summarizing 1 Failure:\n  [FAIL] A token [It] is revoked\n" +
		"Ran 9 of 9 Specs in 9.1 seconds\n--- FAIL: TestEndToEnd (9.1s)\nFAIL\nFAIL\t" + module + "test/suites/e2e\t9.1s\n"
	headed = "\x1b[38;5;9m• [FAILED] [120 seconds]\x1b[0m\n\x1b[0mA boot \x1b[38;5;9m\x1b[1m[It] ends in its pool\x1b[0m\n\x1b[38;5;243m/src/suites/boot_test.go:9\x1b[0m\n\n" +
		"  [FAILED] Timed out after 120.0s.\n  In [It] at: /src/wait.go:7\n------------------------------\n" +
		"• [TIMEDOUT] [9 seconds]\nA token [It] is revoked\n  [BeforeEach] /src/wait.go:3\n  [It] /src/suites/token_test.go:9\n------------------------------\n" + specFails
	cleanupFails = "• [FAILED] [120 seconds]\nA token [It] is revoked\n/src/suites/token_test.go:9\n------------------------------\n" +
		"[AfterSuite] [FAILED] [2.656 seconds]\n[AfterSuite] \n/src/suites/suite_test.go:44\n------------------------------\n" +
		"Summarizing 2 Failures:\n  [FAIL] A token [It] is revoked\n  /src/suites/token_test.go:9\n  [FAIL] [AfterSuite]\n  /src/suites/suite_test.go:44\n\n" +
		"Ran 9 of 9 Specs in 9.1 seconds\n--- FAIL: TestEndToEnd (9.1s)\nFAIL\nFAIL\t" + module + "test/suites/e2e\t9.1s\n"
	otherFails = "--- FAIL: TestWorld (0.1s)\nFAIL\nFAIL\t" + module + "test/world\t0.1s\n"
	okWorld    = "ok  \t" + module + "test/world\t0.1s\n"
	testFails  = "--- FAIL: TestRender (0.1s)\n    --- FAIL: TestRender/twice (0.0s)\n        render_test.go:9: no\nFAIL\nFAIL\t" + module + "bootstrap/pool\t0.1s\n"
	panics     = "panic: nil map [recovered]\n\tpanic: nil map\n\ngoroutine 1 [running]:\nFAIL\t" + module + "test/suites/e2e\t1.0s\n"
	timesOut   = "panic: test timed out after 40m0s\n\trunning tests:\n\t\tTestEndToEnd (40m0s)\n\ngoroutine 9 [running]:\nFAIL\t" + module + "test/suites/e2e\t2400.1s\n"
	races      = "Ran 9 of 9 Specs in 9.1 seconds\nSUCCESS! -- 9 Passed | 0 Failed\n==================\nWARNING: DATA RACE\nRead at 0x0 by goroutine 7:\n==================\n--- FAIL: TestServer (9.1s)\n    testing.go:1617: race detected during execution of test\nFAIL\nFAIL\t" + module + "bootstrap/server\t9.9s\n"
	noCompile  = "# " + module + "bootstrap/pool\npool.go:9:1: undefined: x\nFAIL\t" + module + "bootstrap/pool [build failed]\n"
	killed     = "signal: killed\nFAIL\t" + module + "test/suites/e2e\t7.0s\n"
	setupFails = "Summarizing 1 Failure:\n  [PANICKED!] [BeforeSuite]\n\nRan 0 of 9 Specs in 0.1 seconds\n--- FAIL: TestEndToEnd (0.1s)\nFAIL\nFAIL\t" + module + "test/suites/e2e\t0.2s\n"
)

func TestOutput(t *testing.T) {
	for name, c := range map[string]struct {
		printed string
		path    string
		want    []string
	}{
		"specs, without the test that runs them": {specFails, "test/suites/e2e", []string{"A boot ends in its pool", "A token is revoked"}},
		"a subtest, without its parent":          {testFails, "bootstrap/pool", []string{"TestRender/twice"}},
		"a panic":                                {panics, "test/suites/e2e", []string{"panic: nil map [recovered]"}},
		"a timeout":                              {timesOut, "test/suites/e2e", []string{"TestEndToEnd", "timed out after 40m0s"}},
		"a data race in a suite that passes":     {races, "bootstrap/server", []string{"TestServer", "data race"}},
		"a package that does not compile":        {noCompile, "bootstrap/pool", []string{"the whole package [build failed]"}},
		"a killed program":                       {killed, "test/suites/e2e", []string{"signal: killed"}},
		"a suite whose setup panics":             {setupFails, "test/suites/e2e", []string{"[BeforeSuite]"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := &output{}
			for text := range strings.Lines(okPool + c.printed + okE2E) {
				o.line(text)
			}
			if len(o.results) != 3 || !o.results[0].passed || o.results[1].passed || !o.results[2].passed {
				t.Fatalf("results: %+v", o.results)
			}
			if got := o.results[1]; got.path != module+c.path || !slices.Equal(got.failures, c.want) {
				t.Errorf("got %s %q, want %q", got.path, got.failures, c.want)
			}
		})
	}
}

// fake returns a command that prints one of the texts in each run, and fails if a test in that text failed.
func fake(t *testing.T, texts ...string) (command []string, calls func() string) {
	dir := t.TempDir()
	for i, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, "text"+strings.Repeat("+", i)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	script := `cd "$0"; echo "$@" >> calls; text="text$(cat turn 2>/dev/null)"; cat "$text" || exit 3; ` +
		`echo "$(cat turn 2>/dev/null)+" > turn; ! grep -aqE '^FAIL|^make:' "$text"`
	return []string{"bash", "-c", script, dir}, func() string {
		content, err := os.ReadFile(filepath.Join(dir, "calls"))
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
}

func TestRun(t *testing.T) {
	const e2e = module + "test/suites/e2e"
	for name, c := range map[string]struct {
		first, again []string // output of the command in each run, and of the suites that run again
		failed       bool
		flaky        []string
		calls        string // arguments of the suites
		packages     string
	}{
		"nothing fails":                      {first: []string{okPool + okE2E}, packages: "packages: 2 passed, 0 failed"},
		"specs pass at the second try":       {first: []string{okPool + specFails}, again: []string{okE2E}, flaky: []string{"test/suites/e2e: A boot ends in its pool", "test/suites/e2e: A token is revoked"}, calls: e2e, packages: "packages: 2 passed, 0 failed"},
		"specs whose files are known":        {first: []string{headed}, again: []string{okE2E}, flaky: []string{"test/suites/e2e: A boot ends in its pool", "test/suites/e2e: A token is revoked"}, calls: e2e + ` -ginkgo.focus-file=boot_test\.go -ginkgo.focus-file=token_test\.go`, packages: "packages: 1 passed, 0 failed"},
		"the cleanup of a suite fails too":   {first: []string{cleanupFails}, again: []string{okE2E}, flaky: []string{"test/suites/e2e: A token is revoked", "test/suites/e2e: [AfterSuite]"}, calls: e2e, packages: "packages: 1 passed, 0 failed"},
		"a spec and a test":                  {first: []string{headed + otherFails}, again: []string{okE2E, okWorld}, flaky: []string{"test/suites/e2e: A boot ends in its pool", "test/suites/e2e: A token is revoked", "test/world: TestWorld"}, calls: e2e + ` -ginkgo.focus-file=boot_test\.go -ginkgo.focus-file=token_test\.go` + "\n" + module + "test/world", packages: "packages: 2 passed, 0 failed"},
		"one of two specs fails again":       {first: []string{specFails}, again: []string{oneSpecFails}, failed: true, flaky: []string{"test/suites/e2e: A boot ends in its pool"}, calls: e2e, packages: "packages: 0 passed, 1 failed"},
		"a suite fails twice":                {first: []string{specFails}, again: []string{specFails}, failed: true, calls: e2e, packages: "packages: 0 passed, 1 failed"},
		"the second try panics":              {first: []string{specFails}, again: []string{panics}, failed: true, calls: e2e, packages: "packages: 0 passed, 1 failed"},
		"a suite that times out passes":      {first: []string{timesOut}, again: []string{okE2E}, flaky: []string{"test/suites/e2e: TestEndToEnd", "test/suites/e2e: timed out after 40m0s"}, calls: e2e, packages: "packages: 1 passed, 0 failed"},
		"a unit test passes the second time": {first: []string{testFails, okPool + okE2E}, flaky: []string{"bootstrap/pool: TestRender/twice"}, packages: "packages: 2 passed, 0 failed"},
		"a race at the first try only":       {first: []string{races, "ok  \t" + module + "bootstrap/server\t9.9s\n"}, flaky: []string{"bootstrap/server: TestServer", "bootstrap/server: data race"}, packages: "packages: 1 passed, 0 failed"},
		"a unit test, then a suite":          {first: []string{testFails, okPool + specFails}, again: []string{okE2E}, flaky: []string{"bootstrap/pool: TestRender/twice", "test/suites/e2e: A boot ends in its pool", "test/suites/e2e: A token is revoked"}, calls: e2e, packages: "packages: 2 passed, 0 failed"},
		"a unit test, then a suite, twice":   {first: []string{testFails, okPool + specFails}, again: []string{specFails}, failed: true, flaky: []string{"bootstrap/pool: TestRender/twice"}, calls: e2e, packages: "packages: 1 passed, 1 failed"},
		"the command fails before any test":  {first: []string{"make: *** [Makefile:9: binaries] Error 1\n", okPool}, flaky: []string{"exit status 1"}, packages: "packages: 1 passed, 0 failed"},
		"the command runs no test at all":    {first: []string{"make: *** Error 1\n", "make: *** Error 1\n"}, failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			command, _ := fake(t, c.first...)
			suites, calls := fake(t, c.again...)
			file, log := filepath.Join(t.TempDir(), "report"), &strings.Builder{}
			tries := &tries{suites: suites, command: command, out: log}
			if got := tries.run(context.Background()); got != c.failed {
				t.Errorf("failed: got %v, want %v\n%s", got, c.failed, log)
			}
			if !strings.Contains(log.String(), strings.TrimSpace(c.first[0])) {
				t.Error("the log must keep what go test prints")
			}
			if len(c.again) > 0 && strings.TrimSpace(calls()) != c.calls {
				t.Errorf("suites that ran again: got %q, want %q", calls(), c.calls)
			}
			if len(tries.flaky) != len(c.flaky) {
				t.Fatalf("flaky: got %q, want %q", tries.flaky, c.flaky)
			}
			for i, want := range c.flaky {
				if !strings.Contains(tries.flaky[i], want) {
					t.Errorf("flaky: got %q, want %q", tries.flaky[i], want)
				}
			}
			r := &report{}
			r.add(tries)
			if err := r.write(file); err != nil {
				t.Fatal(err)
			}
			r, err := readReport(file)
			if err != nil {
				t.Fatal(err)
			}
			closing := &strings.Builder{}
			r.print(closing)
			want := c.packages
			if want != "" {
				want += "\n"
			}
			want += "flaky: " + string(rune('0'+len(c.flaky))) + "\n"
			if !strings.HasPrefix(closing.String(), want) || strings.Count(closing.String(), "\n") != strings.Count(want, "\n")+len(c.flaky) {
				t.Errorf("closing lines: got\n%s\nwant\n%s", closing, want)
			}
		})
	}
}

func TestFailuresArePrintedWithoutLogs(t *testing.T) {
	log := &strings.Builder{}
	command, _ := fake(t, "------------------------------\n• [FAILED] [120 seconds]\nA boot ends in its pool\n  Timeline >>\n  a log line\n  << Timeline\n  Expected true\n"+
		"------------------------------\n"+specFails, okE2E)
	(&tries{command: command, out: log}).run(context.Background())
	_, after, found := strings.Cut(log.String(), "=== what failed")
	after, _, _ = strings.Cut(after, "=== once more")
	if !found || !strings.Contains(after, "Expected true") || strings.Contains(after, "a log line") {
		t.Errorf("got %s", after)
	}
}

// TestCheck runs .ci/run in a repository whose make targets are fakes.
func TestCheck(t *testing.T) {
	const (
		flakes = "if [ -e once ]; then printf 'ok  \\texample.com/poolboot/bootstrap/pool\\t0.1s\\n'; else touch once; " +
			"printf -- '--- FAIL: TestRender (0.1s)\\nFAIL\\texample.com/poolboot/bootstrap/pool\\t0.1s\\n'; exit 1; fi"
		passes = "printf 'ok  \\texample.com/poolboot/bootstrap/pool\\t0.1s\\n'"
	)
	for name, c := range map[string]struct {
		lint, test string
		fails      bool
		last       string
	}{
		"all passes":                    {"true", passes, false, "packages: 1 passed, 0 failed\nflaky: 0\n"},
		"a test passes the second time": {"true", flakes, false, "packages: 1 passed, 0 failed\nflaky: 1\n  bootstrap/pool: TestRender\n"},
		"a flake, then a failure":       {"true", flakes + "; exit 1", true, "packages: 1 passed, 0 failed\nflaky: 1\n  bootstrap/pool: TestRender\n"},
		"lint fails":                    {"false", passes, true, "flaky: 0\n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for path, content := range map[string]string{
				".ci/run":                          readFile(t, "../../.ci/run"),
				"hack/native-packages.sh":          "#!/bin/sh\n",
				"go.mod":                           "module example.com/poolboot\n\ngo 1.26\n",
				"api/go.mod":                       "module example.com/poolboot/api\n\ngo 1.26\n",
				"test/poolboottest/example/go.mod": "module example.com/poolboot/example\n\ngo 1.26\n",
				"Makefile":                         ".PHONY: verify lint test\nverify:\nlint:\n\t@" + c.lint + "\ntest:\n\t@" + c.test + "\n",
			} {
				writeFile(t, filepath.Join(dir, path), content)
			}
			sources, err := filepath.Glob("*.go")
			if err != nil {
				t.Fatal(err)
			}
			for _, source := range sources {
				if !strings.HasSuffix(source, "_test.go") {
					writeFile(t, filepath.Join(dir, "hack/retry", source), readFile(t, source))
				}
			}
			check := exec.Command("bash", filepath.Join(dir, ".ci/run"))
			out, err := check.CombinedOutput()
			if failed := err != nil; failed != c.fails || !strings.HasSuffix(string(out), ")\n"+c.last) {
				t.Errorf("%v, got\n%s\nwant as its last lines\n%s", err, out, c.last)
			}
		})
	}
}

func readFile(t *testing.T, path string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func writeFile(t *testing.T, path, content string) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
		t.Fatal(err)
	}
}

func TestLimit(t *testing.T) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), time.Second, errors.New("out of time"))
	defer cancel()
	// The interrupt reaches the programs that the command has started, as that of a terminal does.
	script := `bash -c 'trap "echo a spec was running; exit 1" INT; while :; do sleep 0.1; done'; echo "FAIL	` + module + `test/suites/e2e	1.0s"; exit 1`
	log := &strings.Builder{}
	tries := &tries{suites: []string{"false"}, command: []string{"bash", "-c", "trap : INT; " + script}, out: log}
	if !tries.run(ctx) {
		t.Error("an interrupted command has failed")
	}
	for _, want := range []string{"=== interrupted: out of time", "a spec was running"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%q is missing in %s", want, log)
		}
	}
	if strings.Contains(log.String(), "once more") {
		t.Error("there is no time for another try")
	}
}
