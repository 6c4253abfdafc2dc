package main

import (
	"slices"
	"testing"
)

// FuzzFiles promises that whatever a file holds gets an answer or an error that says why.
func FuzzFiles(f *testing.F) {
	for _, seed := range []string{openshiftInfra, infra51, ownPool("edge", "worker") + "---\n" + ownConfig("a", "worker", motd("a")),
		`{"apiVersion":"v1","kind":"List","items":[{},null]}{}`, "---\n--- a\n", "&a [*a]", "{a: b}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, args := range [][]string{
			{"which", "--pools", "-", "--labels", "node-role.kubernetes.io/infra="},
			{"render", "-f", "-", "--pool", "infra"},
		} {
			r := poolbootReading(text, args...)
			if !slices.Contains([]int{0, exitError, exitConflict}, r.code) || r.code != 0 && r.errOut == "" {
				t.Errorf("%v: exit code %d, %q", args, r.code, r.errOut)
			}
		}
	})
}
