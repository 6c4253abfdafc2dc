package update_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// FuzzPlan promises that a plan of any two rendered configs has either obstacles or actions, that the same config needs
// nothing, and that the way back has an action for every change, too.
func FuzzPlan(f *testing.F) {
	f.Add(`{"config":{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/a","mode":384,"contents":{"source":"data:,a"}}]}}}`,
		`{"kernelArguments":["a b"],"config":{"ignition":{"version":"3.2.0"},"systemd":{"units":[{"name":"a.service","enabled":true,"contents":"[Unit]","dropins":[{"name":"b.conf","contents":"[Unit]"}]}]}}}`)
	f.Add(`{"fips":true,"config":{"ignition":{"version":"2.2.0"},"passwd":{"users":[{"name":"core","passwordHash":"x","sshAuthorizedKeys":["k"]}]}}}`,
		`{"config":{"ignition":{"version":"3.5.0"},"storage":{"luks":[{"name":"a","device":"/dev/a"}],"links":[{"path":"/l","target":"/a","hard":true}],"directories":[{"path":"/d"}],"files":[{"path":"/a","append":[{"source":"http://a/b"}]}]}}}`)
	f.Fuzz(func(t *testing.T, before, after string) {
		var from, to poolv1.MachineConfigSpec
		if json.Unmarshal([]byte(before), &from) != nil || json.Unmarshal([]byte(after), &to) != nil {
			return
		}
		old, err := pool.ParseRendered(from)
		if err != nil {
			return
		}
		now, err := pool.ParseRendered(to)
		if err != nil {
			return
		}
		there, back, same := newPlan(old, now), newPlan(now, old), newPlan(now, now)
		if there.IsPossible() == (len(there.Actions) == 0) || !there.IsPossible() && len(there.Operations) > 0 {
			t.Errorf("obstacles %v, but actions %v and operations %v", there.Obstacles, there.Actions, there.Operations)
		}
		isMore := func(o update.Operation) bool { return o.Name != hosttree.PresetPath }
		if len(there.Changes) != len(back.Changes) || there.IsPossible() && len(there.Changes) == 0 && slices.ContainsFunc(there.Operations, isMore) {
			t.Errorf("there %v, back %v", there.Changes, back.Changes)
		}
		if none := []update.Action{{Type: update.None}}; len(same.Changes)+len(same.Obstacles)+len(same.Operations) > 0 || !reflect.DeepEqual(same.Actions, none) {
			t.Errorf("the same config needs %v", same)
		}
	})
}

func newPlan(before, after update.Config) update.Plan {
	return update.New(before, after, update.DefaultPolicy(), update.AllCapabilities)
}
