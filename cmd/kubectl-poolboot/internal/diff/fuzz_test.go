package diff

import (
	"io"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// FuzzCompare promises that two rendered configs are compared whatever is in them, and that the same ones have no
// difference.
func FuzzCompare(f *testing.F) {
	f.Add(`{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/a","mode":384,"contents":{"source":"data:,a"}}]}}`,
		`{"ignition":{"version":"3.2.0"},"systemd":{"units":[{"name":"a.service","dropins":[{"name":"b.conf","contents":"[Unit]"}]}]}}`)
	f.Add(`{"ignition":{"version":"3.2.0"},"passwd":{"users":[{"name":"core","passwordHash":"x","sshAuthorizedKeys":["k"]}]}}`,
		`{"ignition":{"version":"3.4.0"},"storage":{"luks":[{"name":"a","device":"/dev/a"}],"files":[{"path":"/a","append":[{"source":"http://a/b"}]}]}}`)
	f.Fuzz(func(t *testing.T, before, after string) {
		of := func(config string) poolv1.MachineConfigSpec {
			return poolv1.MachineConfigSpec{Config: &runtime.RawExtension{Raw: []byte(config)}}
		}
		changes, err := compare(of(before), of(after))
		if err != nil {
			return
		}
		if err := (difference{changes: changes}).print(io.Discard); err != nil {
			t.Error(err)
		}
		if same, _ := compare(of(after), of(after)); len(same) > 0 {
			t.Errorf("%q differs from itself: %v", after, same)
		}
	})
}
