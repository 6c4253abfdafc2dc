package main

import (
	"io"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
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

// FuzzConvert promises that what comes out of convert is read by Poolboot without a complaint, and comes out of the
// same objects again.
func FuzzConvert(f *testing.F) {
	for _, seed := range []string{openshiftWorker + "---\n" + openshiftInfra + "---\n" + infra51, openshiftMaster, "{a: b}",
		labelled(openshiftInfra, "a: b") + "---\n" + theirKubelet("big", "a: b", "kubeletConfig: {maxPods: 500, providerID: x}, logLevel: 4")} {
		f.Add(seed)
	}
	args := []string{"convert", "-f", "-", "--cluster", "edge", "-n", "default"}
	f.Fuzz(func(t *testing.T, text string) {
		r := poolbootReading(text, args...)
		if r.code != 0 {
			if r.code != exitError || r.out != "" || r.errOut == "" {
				t.Errorf("exit code %d, %q, %q", r.code, r.out, r.errOut)
			}
			return
		}
		if again := poolbootReading(text, args...); again.out != r.out {
			t.Errorf("%q came out as %q, then as %q", text, r.out, again.out)
		}
		if read := poolbootReading(r.out, "which", "--pools", "-", "--labels", "a=b"); read.code != 0 {
			t.Errorf("%q can't be read: %s", r.out, read.errOut)
		}
	})
}

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
