package convert

import (
	"testing"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

// FuzzConvert promises that what comes out of convert is read by Poolboot without a complaint, and comes out of the
// same objects again.
func FuzzConvert(f *testing.F) {
	for _, seed := range []string{clitest.OpenShiftWorker + "---\n" + clitest.OpenShiftInfra + "---\n" + clitest.OpenShiftInfra51, clitest.OpenShiftMaster, "{a: b}",
		addLabel(clitest.OpenShiftInfra, "a: b") + "---\n" + newKubeletConfig("big", "a: b", "kubeletConfig: {maxPods: 500, providerID: x}, logLevel: 4"),
		clitest.OpenShiftWorker + "---\n" + newTelcoConfig("50-a", "worker", telcoDropin) + "---\n" + newTelcoConfig("60-b", "infra", otherTelcoDropin) + "---\n" + clitest.OpenShiftInfra,
		clitest.OpenShiftWorker + "---\n" + newMirrorSet("ImageDigestMirrorSet", "d", "imageDigestMirrors: [{source: quay.io/a, mirrors: [b.local]}]") + "---\n" +
			newMirrorSet("Image", "cluster", `registrySources: {insecureRegistries: ["*.b.local"], blockedRegistries: [quay.io]}`),
		addLabel(clitest.OpenShiftWorker, "a: b") + "---\n" + newRuntimeConfig("r", "a: b", "pidsLimit: 100, logLevel: info, logSizeMax: 1Mi, overlaySize: 1Gi, defaultRuntime: runc"),
		clitest.OpenShiftWorker + "---\n" + newMachineConfiguration("nodeDisruptionPolicy: {files: [{path: /a/, actions: []}], units: [{name: a.service, actions: [{type: Restart, restart: {serviceName: a.service}}]}]}")} {
		f.Add(seed)
	}
	args := []string{"convert", "-f", "-", "--cluster", "edge", "-n", "default"}
	f.Fuzz(func(t *testing.T, text string) {
		r := runWithInput(text, args...)
		if r.Code != 0 {
			if r.Code != cli.ExitFailure || r.Out != "" || r.ErrOut == "" {
				t.Errorf("exit code %d, %q, %q", r.Code, r.Out, r.ErrOut)
			}
			return
		}
		if again := runWithInput(text, args...); again.Out != r.Out {
			t.Errorf("%q came out as %q, then as %q", text, r.Out, again.Out)
		}
		if read := runWithInput(r.Out, "which", "--pools", "-", "--labels", "a=b"); read.Code != 0 {
			t.Errorf("%q can't be read: %s", r.Out, read.ErrOut)
		}
	})
}
