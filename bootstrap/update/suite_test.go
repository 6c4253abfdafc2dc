package update_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

func TestUpdate(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Update")
}

// spec returns the spec of a rendered config, in YAML.
func spec(text string) (s poolv1.MachineConfigSpec) {
	GinkgoHelper()
	Expect(yaml.UnmarshalStrict([]byte(text), &s)).To(Succeed())
	return s
}

// withIgnition returns the spec of a rendered config with this in its Ignition, in YAML's flow style.
func withIgnition(content string) string {
	return "{config: {ignition: {version: 3.5.0}, " + content + "}}"
}

// parse returns a configuration.
func parse(s poolv1.MachineConfigSpec) update.Config {
	GinkgoHelper()
	config, err := pool.ParseRendered(s)
	Expect(err).NotTo(HaveOccurred())
	return config
}

// policy returns a policy, in YAML.
func policy(text string) (p poolv1.DisruptionPolicy) {
	GinkgoHelper()
	Expect(yaml.UnmarshalStrict([]byte(text), &p)).To(Succeed())
	return p
}

// planOf returns the plan between two specs in YAML, for a host with all programs.
func planOf(before, after string, policies ...poolv1.DisruptionPolicy) update.Plan {
	GinkgoHelper()
	return update.New(parse(spec(before)), parse(spec(after)), pool.NewUpdatePolicy(policies...), update.AllCapabilities)
}

// describe returns actions as text, such as "Reload crio.service".
func describe(actions []update.Action) (out []string) {
	for _, action := range actions {
		out = append(out, action.String())
	}
	return out
}

// rawSpec returns a spec with this Ignition document.
func rawSpec(document string) poolv1.MachineConfigSpec {
	return poolv1.MachineConfigSpec{Config: &runtime.RawExtension{Raw: []byte(document)}}
}
