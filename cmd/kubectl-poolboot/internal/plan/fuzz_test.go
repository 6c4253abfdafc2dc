package plan

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
)

// FuzzPlan promises that any config and any policy lead to an answer in JSON or to an error.
func FuzzPlan(f *testing.F) {
	f.Add(newConfig(ours, newName, newFile(`contents: {source: "data:,1"}`)), newPool("infra", "{files: [{path: /etc, actions: [{type: None}]}]}"))
	f.Add(newConfig(theirs, newName, "{kernelArguments: [a], fips: true}"), newMachineConfiguration("{files: [{path: /etc/a/, actions: []}], units: [{name: a.service, actions: [{type: Restart, restart: {serviceName: a.service}}]}]}"))
	f.Add("{a: b}", "&a [*a]")
	f.Fuzz(func(t *testing.T, config, policy string) {
		directory := t.TempDir()
		for name, text := range map[string]string{"old": newConfig(ours, oldName, "{}"), "policy": policy} {
			if err := os.WriteFile(filepath.Join(directory, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r := runPlan(config, "--from", filepath.Join(directory, "old"), "--to", "-", "--policy", filepath.Join(directory, "policy"), "-o", "json")
		switch {
		case r.Code == 0 && !json.Valid([]byte(r.Out)), r.Code != 0 && (r.Code != cli.ExitFailure || r.Out != "" || r.ErrOut == ""):
			t.Errorf("exit code %d, %q, %q", r.Code, r.Out, r.ErrOut)
		}
	})
}
