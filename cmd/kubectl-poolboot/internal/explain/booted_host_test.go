package explain

import (
	"encoding/json"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

// bootedHost is a Machine with its host in the pool infra of a Cluster, and its Node. infra is the pool in YAML.
type bootedHost struct {
	machine *clusterv1.Machine
	config  *bootstrapv1.PoolbootConfig
	infra   string
	node    *corev1.Node
}

func newBootedHost() *bootedHost {
	h := &bootedHost{}
	h.machine = &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "infra-x7k2m", Namespace: "edge", Labels: map[string]string{
		"node-role.kubernetes.io/infra": "", "rack.node.cluster.x-k8s.io/id": "r7", "example.com/not-synced": "x"}}}
	h.machine.Spec.ClusterName = "infra-1"
	h.machine.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{Kind: "PoolbootConfig", Name: "infra-x7k2m-config", APIGroup: bootstrapv1.GroupVersion.Group}
	h.machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{Kind: "Metal3Machine", Name: "infra-x7k2m", APIGroup: "infrastructure.cluster.x-k8s.io"}
	h.config = clitest.PoolbootConfig("infra", "infra-x7k2m", "infra-x7k2m")
	h.config.Spec.Node.Labels = map[string]string{"example.com/own": "yes"}
	h.config.Status.HostRef = bootstrapv1.HostReference{Name: "rack1-u12", Namespace: "edge", UID: "uid-1"}
	h.config.Status.DerivedNodeLabels = map[string]string{"example.com/site": "dallas"}
	h.config.Status.Conditions = []metav1.Condition{{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionTrue, Reason: "NodeReadyInPool", Message: "all is well"}}
	h.infra = clitest.Pool("infra-1", "infra") + "  node:\n    labels: {example.com/tier: infra}\n    taints: [{key: example.com/infra, effect: NoSchedule}]\n" +
		"    labelRules:\n" + newRule("example.com/site", "host.name", "")
	h.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "infra-x7k2m",
		Annotations: map[string]string{poolv1.NodeConfigAnnotation: "edge/infra-x7k2m-config"},
		Labels: map[string]string{"node-role.kubernetes.io/infra": "", poolv1.NodePoolLabel: "infra", "example.com/tier": "infra", "example.com/own": "yes",
			"example.com/site": "dallas", "rack.node.cluster.x-k8s.io/id": "r7", poolv1.NodeMetal3UUIDLabel: "uid-1", "kubernetes.io/os": "linux", "kubernetes.io/hostname": "infra-x7k2m", "beta.kubernetes.io/os": "linux", "example.com/synced": "yes"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet", APIVersion: "v1", Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:beta.kubernetes.io/os":{},"f:example.com/tier":{}}}}`)}, {Manager: "manager", APIVersion: "v1", Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:example.com/synced":{}}}}`)}},
	}}
	h.node.Spec.Taints = []corev1.Taint{{Key: "example.com/infra", Effect: corev1.TaintEffectNoSchedule}, {Key: "node.kubernetes.io/disk-pressure", Effect: corev1.TaintEffectNoSchedule}}
	return h
}

// asked runs explain. If mayRead is false, the workload cluster can't be read.
func (h *bootedHost) asked(mayRead bool, args ...string) (*bootReport, clitest.Result) {
	GinkgoHelper()
	to := clitest.NewFakeConnection([]string{h.infra, clitest.Pool("infra-1", "worker")}, h.machine, h.config)
	if mayRead {
		to.Own = clitest.NewFakeClientBuilder().WithReturnManagedFields().WithObjects(h.node).Build()
	}
	r := clitest.RunOn(to, New, append([]string{"explain"}, args...)...)
	answer := &bootReport{}
	if json.Valid([]byte(r.Out)) {
		Expect(json.Unmarshal([]byte(r.Out), answer)).To(Succeed())
	}
	return answer, r
}

// sourcesOf returns the states and sources of labels or taints by their texts.
func sourcesOf(list []nodeProperty) map[string]string {
	found := map[string]string{}
	for _, p := range list {
		found[p.Text] = string(p.State) + " " + strings.Join(p.From, ", ")
	}
	return found
}
