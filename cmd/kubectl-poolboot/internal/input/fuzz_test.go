package input_test

import (
	"slices"
	"testing"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

// FuzzFiles checks that every file leads to an answer or an error message.
func FuzzFiles(f *testing.F) {
	for _, seed := range []string{clitest.OpenShiftInfra, clitest.OpenShiftInfra51, clitest.Pool("edge", "worker") + "---\n" + clitest.Config("a", "worker", clitest.Motd("a")),
		`{"apiVersion":"v1","kind":"List","items":[{},null]}{}`, "---\n--- a\n", "&a [*a]", "{a: b}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, args := range [][]string{
			{"which", "--pools", "-", "--labels", "node-role.kubernetes.io/infra="},
			{"render", "-f", "-", "--pool", "infra"},
		} {
			r := poolbootReading(text, args...)
			if !slices.Contains([]int{0, cli.ExitFailure, cli.ExitActionRequired}, r.Code) || r.Code != 0 && r.ErrOut == "" {
				t.Errorf("%v: exit code %d, %q", args, r.Code, r.ErrOut)
			}
		}
	})
}
