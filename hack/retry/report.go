package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// report has the results of several commands.
type report struct {
	Passed int // packages, in the last try
	Failed int
	Flaky  []string
}

// readReport reads a report. If the file does not exist, the report is empty.
func readReport(file string) (*report, error) {
	r := &report{}
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	return r, json.Unmarshal(content, r)
}

func (r *report) write(file string) error {
	content, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o600)
}

func (r *report) add(t *tries) {
	for _, passed := range t.packages {
		if passed {
			r.Passed++
		} else {
			r.Failed++
		}
	}
	r.Flaky = append(r.Flaky, t.flaky...)
}

// print prints the report, as the last lines of a log, for users and programs.
func (r *report) print(out io.Writer) {
	if r.Passed+r.Failed > 0 {
		fmt.Fprintf(out, "packages: %d passed, %d failed\n", r.Passed, r.Failed)
	}
	fmt.Fprintf(out, "flaky: %d\n", len(r.Flaky))
	for _, name := range r.Flaky {
		fmt.Fprintf(out, "  %s\n", name)
	}
}
