package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// result is the result of the tests of a package.
type result struct {
	path     string
	passed   bool
	failures []string // names of specs and tests; not empty if the package failed
	files    []string // base names of the files of the failed specs, if nothing else failed
	complete bool     // every test ran to its end: no panic, no timeout, no error of the compiler
}

// output parses the output of go test line by line.
type output struct {
	results []result
	at      part
}

// part is what was found in the output of one package so far.
type part struct {
	specs, tests, crashes []string
	files                 []string // base name of the file of each failed spec
	header                bool     // the next location is that of a failed spec
	suiteEnded            bool     // the next failed test is the one that ran a Ginkgo suite
	race                  bool
	timedOut              bool
}

var (
	escapes = regexp.MustCompile(`\x1b\[[0-9;]*m`)
	closing = regexp.MustCompile(`^(ok  |FAIL)\s+([^\s\[]\S*)(\s.*)?$`)
	spec    = regexp.MustCompile(`^\s*\[(?:FAIL|PANICKED!|TIMEDOUT|INTERRUPTED|ABORTED)\] (.+)$`)
	test    = regexp.MustCompile(`^\s*--- FAIL: (\S+)`)
	crash   = regexp.MustCompile(`^(panic: .*|fatal error: .*|signal: .*|SIG[A-Z]+: .*)$`)
	timeout = regexp.MustCompile(`^panic: test timed out after (\S+)`)
	running = regexp.MustCompile(`^\s+(Test\S+) \(\S+\)$`)
	node    = regexp.MustCompile(`\[(It|DescribeTable)\] `)

	header   = regexp.MustCompile(`^\S+ \[(?:FAILED|PANICKED!|TIMEDOUT)\] \[`)
	location = regexp.MustCompile(`^(?:\s+\[It\] )?/(?:\S+/)?(\S+\.go):\d+$`)
)

// line parses one line.
func (o *output) line(text string) {
	text = strings.TrimRight(escapes.ReplaceAllString(text, ""), "\r\n")
	p := &o.at
	switch {
	case closing.MatchString(text):
		o.close(closing.FindStringSubmatch(text))
	case timeout.MatchString(text):
		p.timedOut = true
		p.crashes = append(p.crashes, "timed out after "+timeout.FindStringSubmatch(text)[1])
	case p.timedOut && running.MatchString(text):
		p.tests = append(p.tests, running.FindStringSubmatch(text)[1])
	case crash.MatchString(text):
		p.crashes = append(p.crashes, text)
	case header.MatchString(text):
		p.header = true
	case p.header && location.MatchString(text):
		p.files, p.header = append(p.files, location.FindStringSubmatch(text)[1]), false
	case strings.HasPrefix(text, "WARNING: DATA RACE"):
		p.race = true
	case strings.HasPrefix(text, "Ran ") && strings.Contains(text, " Specs in "):
		p.suiteEnded = true
	case spec.MatchString(text):
		p.specs = append(p.specs, node.ReplaceAllString(spec.FindStringSubmatch(text)[1], ""))
	case test.MatchString(text):
		if !p.suiteEnded || len(p.specs) == 0 {
			p.tests = append(p.tests, test.FindStringSubmatch(text)[1])
		}
		p.suiteEnded = false
	case strings.HasPrefix(text, "--- PASS: "):
		p.suiteEnded = false
	}
}

// close adds the result of the current package.
func (o *output) close(match []string) {
	r := result{path: match[2], passed: match[1] != "FAIL", complete: true}
	if !r.passed {
		r.complete = len(o.at.crashes) == 0 && !strings.Contains(match[3], "failed]")
		r.failures = o.at.names()
		if r.complete && o.at.onlySpecs() {
			r.files = o.at.files
		}
		if len(r.failures) == 0 {
			r.failures = []string{strings.TrimSpace("the whole package " + strings.TrimSpace(match[3]))}
		}
	}
	o.results = append(o.results, r)
	o.at = part{}
}

// onlySpecs reports whether nothing but specs failed, and the file of each is known.
func (p *part) onlySpecs() bool {
	ofSuite := func(name string) bool { return strings.HasPrefix(name, "[") } // such as [AfterSuite]
	return len(p.specs) == len(p.files) && len(p.tests) == 0 && !p.race && !slices.ContainsFunc(p.specs, ofSuite)
}

// names returns the specs and tests that failed, and failures that are not those of a single test.
func (p *part) names() (names []string) {
	for _, name := range p.tests {
		parent := slices.ContainsFunc(p.tests, func(other string) bool { return strings.HasPrefix(other, name+"/") })
		if !parent {
			names = append(names, name)
		}
	}
	names = append(slices.Clone(p.specs), names...)
	if p.race {
		names = append(names, "data race")
	}
	names = append(names, p.crashes...)
	slices.Sort(names)
	return slices.Compact(names)
}

// failed returns the packages that failed, by path.
func (o *output) failed() map[string]result {
	failed := map[string]result{}
	for _, r := range o.results {
		if !r.passed {
			failed[r.path] = r
		}
	}
	return failed
}

// shorten returns the name of a failure with the path of its package, without the path of the module.
func shorten(path, name string) string {
	if path == "" {
		return name
	}
	for _, folder := range []string{"/api/", "/bootstrap/", "/cmd/", "/controllers/", "/hack/", "/test/"} {
		if _, inside, found := strings.Cut(path, folder); found {
			path = folder[1:] + inside
			break
		}
	}
	return fmt.Sprintf("%s: %s", path, name)
}
