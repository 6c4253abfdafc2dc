package alerts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const rules = "../../config/prometheus/alerts.yaml"

// promrules builds the program that tests rules and returns its path.
func promrules(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../bin/promrules")
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command("make", "-C", "../..", "--no-print-directory", path)
	for _, setting := range os.Environ() {
		if name, _, _ := strings.Cut(setting, "="); !strings.HasPrefix(name, "MAKE") && name != "MFLAGS" {
			build.Env = append(build.Env, setting)
		}
	}
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return path
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestAlertsFireWhenTheyShould(t *testing.T) {
	output, err := exec.Command(promrules(t), "alerts.yaml").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	t.Logf("%s", output)
}

// TestWrongAlertsFail verifies that the tests of the alerts detect each of these changes.
func TestWrongAlertsFail(t *testing.T) {
	program, right, tests := promrules(t), read(t, rules), read(t, "alerts.yaml")
	for name, change := range map[string]struct{ old, new, says string }{
		"a higher limit":                  {"> 1800", "> 2400", "PoolbootBootPending at 41m0s"},
		"a longer wait":                   {"for: 10m", "for: 11m", "PoolbootBootPending at 41m0s"},
		"a missing stage":                 {"Preparing|Serving|Joining", "Preparing|Serving", "PoolbootBootStuck at 1h0m0s"},
		"workqueues of every program":     {"> 300 and on (job, instance) poolboot_boot_prepare_seconds_count", "> 300", "PoolbootControllerHangs at 11m0s"},
		"no end after the last increment": {"increase(poolboot_pool_conflicts_total[1h])", "poolboot_pool_conflicts_total", "PoolbootPoolConflict at 1h30m0s"},
		"an alert without a test":         {"alert: PoolbootPoolConflict", "alert: PoolbootNew", "no test has the alert PoolbootNew fire"},
		"an expression with a mistake":    {"> 1800", ">> 1800", "unexpected"},
		"a template with a mistake":       {"{{ $value | humanizeDuration }}", "{{ $values }}", "undefined variable"},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(right, change.old) {
				t.Fatalf("%s has no %q", rules, change.old)
			}
			dir := t.TempDir()
			for path, content := range map[string]string{
				"alerts.yaml": strings.Replace(tests, rules, "rules.yaml", 1), "rules.yaml": strings.Replace(right, change.old, change.new, 1),
			} {
				if err := os.WriteFile(filepath.Join(dir, path), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			output, err := exec.Command(program, filepath.Join(dir, "alerts.yaml")).CombinedOutput()
			if err == nil || !strings.Contains(string(output), change.says) {
				t.Errorf("%v: %s\nwant an error with %q", err, output, change.says)
			}
		})
	}
}

func TestAlertsAreDocumented(t *testing.T) {
	document, text := read(t, "../../docs/metrics.md"), read(t, rules)
	var want, got []string
	for _, alert := range regexp.MustCompile(`(?s)- alert: (\w+)\n.*?for: (\w+)`).FindAllStringSubmatch(text, -1) {
		want = append(want, fmt.Sprintf("%s for %s", alert[1], alert[2]))
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `(Poolboot\\w+)` \\| .+ \\| (\\d+m) \\| .+ \\|$").FindAllStringSubmatch(document, -1) {
		got = append(got, fmt.Sprintf("%s for %s", row[1], row[2]))
	}
	if len(want) != strings.Count(text, "alert: ") || strings.Join(want, "\n") != strings.Join(got, "\n") {
		t.Errorf("docs/metrics.md lists\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, metric := range regexp.MustCompile(`poolboot_\w+`).FindAllString(text, -1) {
		if !strings.Contains(document, "| `"+strings.TrimSuffix(metric, "_count")+"` |") {
			t.Errorf("docs/metrics.md does not list %s, which an alert uses", metric)
		}
	}
}

func TestAlertsAndDashboardsSelectDocumentedValues(t *testing.T) {
	documents := read(t, "../../docs/metrics.md") + read(t, "../../docs/conditions.md")
	paths, err := filepath.Glob("../../config/grafana/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("there are no dashboards: %v", err)
	}
	for _, path := range append(paths, rules) {
		for _, matcher := range regexp.MustCompile(`\b(stage|state|outcome|reason|condition|path)[=!]~?\\?"([\w|]+)\\?"`).FindAllStringSubmatch(read(t, path), -1) {
			for value := range strings.SplitSeq(matcher[2], "|") {
				if !strings.Contains(documents, "`"+value+"`") {
					t.Errorf("%s: no page has the value %s of the label %s", path, value, matcher[1])
				}
			}
		}
	}
}
