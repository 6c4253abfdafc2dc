package pool_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// spec returns the spec of a rendered config, in YAML.
func spec(text string) (s poolv1.MachineConfigSpec) {
	GinkgoHelper()
	Expect(yaml.UnmarshalStrict([]byte(text), &s)).To(Succeed())
	return s
}

// parse returns the configuration of a spec in YAML.
func parse(text string) update.Config {
	GinkgoHelper()
	config, err := pool.ParseRendered(spec(text))
	Expect(err).NotTo(HaveOccurred())
	return config
}

// policy returns a policy, in YAML.
func policy(text string) (p poolv1.DisruptionPolicy) {
	GinkgoHelper()
	Expect(yaml.UnmarshalStrict([]byte(text), &p)).To(Succeed())
	return p
}
