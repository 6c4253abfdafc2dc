package pool_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/coreos/ignition/v2/config"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/golden"
)

func TestPool(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Pool")
}

const (
	infraLabel  = poolv1.NodeRoleLabelPrefix + "infra"
	workerLabel = poolv1.NodeRoleLabelPrefix + "worker"
	roleLabel   = "machineconfiguration.openshift.io/role"
)

// newPool returns a pool of a role that selects the MachineConfigs labeled with the role.
func newPool(role string) poolv1.MachineConfigPool {
	return poolv1.MachineConfigPool{
		ObjectMeta: metav1.ObjectMeta{Name: role},
		Spec: poolv1.MachineConfigPoolSpec{
			ClusterName:           "lab",
			PoolRole:              role,
			MachineConfigSelector: &metav1.LabelSelector{MatchLabels: map[string]string{roleLabel: role}},
		},
	}
}

// selecting returns the pool with a node selector.
func selecting(p poolv1.MachineConfigPool, labels map[string]string, requirements ...metav1.LabelSelectorRequirement) poolv1.MachineConfigPool {
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: labels, MatchExpressions: requirements}
	return p
}

// requirement returns a requirement of a selector.
func requirement(key string, operator metav1.LabelSelectorOperator, values ...string) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: values}
}

// newConfig returns a MachineConfig, labeled for a role, with one file.
func newConfig(name, role, path, contents string) poolv1.MachineConfig {
	return withIgnition(name, role, fmt.Sprintf(
		`{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":%q,"mode":420,"contents":{"source":"data:,%s"}}]}}`, path, contents))
}

// withIgnition returns a MachineConfig with this Ignition, labeled for a role.
func withIgnition(name, role, document string) poolv1.MachineConfig {
	return poolv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{roleLabel: role}},
		Spec:       poolv1.MachineConfigSpec{Config: &runtime.RawExtension{Raw: []byte(document)}},
	}
}

// expectGolden compares a document with testdata/<name>, and parses the Ignition with Ignition's own parser.
func expectGolden(name string, document, ignition []byte) {
	GinkgoHelper()
	golden.Expect(name, append(slices.Clip(document), '\n'))
	_, report, err := config.Parse(ignition)
	Expect(err).NotTo(HaveOccurred(), report.String())
}
