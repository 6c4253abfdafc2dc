package registration_test

import (
	"encoding/json"
	"reflect"

	"github.com/google/cel-go/cel"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

// test/suites/e2e/compromised_node_test.go tests the policy on a real API server, with a real kubelet and with a stolen
// kubelet credential.
var _ = Describe("The policy that guards Nodes", func() {
	selecting := func(role string, keys ...string) poolv1.MachineConfigPool {
		p := poolOf(role)
		p.Spec.NodeSelector = &metav1.LabelSelector{}
		for _, key := range keys {
			p.Spec.NodeSelector.MatchExpressions = append(p.Spec.NodeSelector.MatchExpressions,
				metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpExists})
		}
		return p
	}
	text := func(pools ...poolv1.MachineConfigPool) string {
		GinkgoHelper()
		written, err := json.Marshal(registration.Guard("guard", pools))
		Expect(err).NotTo(HaveOccurred())
		var objects []struct {
			Spec struct {
				Variables []struct{ Name, Expression string }
			}
		}
		Expect(json.Unmarshal(written, &objects)).To(Succeed())
		Expect(objects).To(HaveLen(2))
		Expect(objects[0].Spec.Variables).To(ContainElement(HaveField("Name", "changed")))
		return objects[0].Spec.Variables[len(objects[0].Spec.Variables)-1].Expression
	}

	It("does not depend on the order of the pools", func() {
		a, b := selecting("gpu", "example.com/gpu", "example.com/site"), selecting("storage", "example.com/site", "example.com/disks")
		Expect(text(a, b)).To(And(Equal(text(b, a)), ContainSubstring(
			`["example.com/disks","example.com/gpu","example.com/site","metal3.io/uuid"]`)))
	})

	It("lets a kubelet add the labels that it detects, also when a pool selects by them", func() {
		Expect(text(selecting("arm", "kubernetes.io/arch"))).To(And(
			ContainSubstring(`["metal3.io/uuid"].filter(k, variables`),
			ContainSubstring(`["kubernetes.io/arch","kubernetes.io/os"].filter(k, k in variables.labelsBefore && `)))
	})

	It("prevents a kubelet from changing the owner references and finalizers of its Node", func() {
		Expect(text()).To(And(ContainSubstring(`["metadata.ownerReferences"]`), ContainSubstring(`["metadata.finalizers"]`)))
	})

	DescribeTable("prevents a kubelet from changing the data by which Cluster API changes its Node",
		func(change func(*corev1.Node), changed ...any) {
			before := &corev1.Node{}
			before.Annotations = map[string]string{clusterv1.LabelsFromMachineAnnotation: "node-role.kubernetes.io/infra"}
			after := before.DeepCopy()
			change(after)
			env, err := cel.NewEnv(cel.OptionalTypes(), cel.Variable("variables", cel.DynType), cel.Variable("object", cel.DynType), cel.Variable("oldObject", cel.DynType))
			Expect(err).NotTo(HaveOccurred())
			compiled, issues := env.Compile(text())
			Expect(issues.Err()).NotTo(HaveOccurred())
			program, err := env.Program(compiled)
			Expect(err).NotTo(HaveOccurred())
			object := func(n *corev1.Node) map[string]any {
				made, err := runtime.DefaultUnstructuredConverter.ToUnstructured(n)
				Expect(err).NotTo(HaveOccurred())
				return made
			}
			found, _, err := program.Eval(map[string]any{"object": object(after), "oldObject": object(before), "variables": map[string]any{
				"labelsBefore": before.Labels, "labels": after.Labels, "annotationsBefore": before.Annotations, "annotations": after.Annotations}})
			Expect(err).NotTo(HaveOccurred())
			list, err := found.ConvertToNative(reflect.TypeFor[[]string]())
			Expect(err).NotTo(HaveOccurred())
			Expect(list).To(ConsistOf(changed...))
		},
		Entry("but allows an update without a change", func(*corev1.Node) {}),
		Entry("but allows any other annotation", func(n *corev1.Node) { metav1.SetMetaDataAnnotation(&n.ObjectMeta, "example.com/any", "") }),
		Entry("but allows the reports of the agent", func(n *corev1.Node) {
			for _, key := range agentv1.Reports {
				metav1.SetMetaDataAnnotation(&n.ObjectMeta, key, "any")
			}
		}),
		Entry("what the manager tells the agent", func(n *corev1.Node) {
			for _, key := range []string{agentv1.DesiredAnnotation, agentv1.DrainedAnnotation, agentv1.DrainStartedAnnotation, agentv1.DetachStartedAnnotation, agentv1.CordonedAnnotation} {
				metav1.SetMetaDataAnnotation(&n.ObjectMeta, key, "any")
			}
		}, agentv1.DesiredAnnotation, agentv1.DrainedAnnotation, agentv1.DrainStartedAnnotation, agentv1.DetachStartedAnnotation, agentv1.CordonedAnnotation),
		Entry("the providerID of another Machine", func(n *corev1.Node) { n.Spec.ProviderID = "metal3://metal/rack1-u12/infra-1" }, "spec.providerID"),
		Entry("the list of labels that Cluster API can remove",
			func(n *corev1.Node) { n.Annotations[clusterv1.LabelsFromMachineAnnotation] = "example.com/gpu" }, clusterv1.LabelsFromMachineAnnotation),
		Entry("the list of annotations that Cluster API can remove",
			func(n *corev1.Node) {
				n.Annotations[clusterv1.AnnotationsFromMachineAnnotation] = "poolboot.io/poolbootconfig"
			}, clusterv1.AnnotationsFromMachineAnnotation),
		Entry("the list of taints that Cluster API can remove",
			func(n *corev1.Node) { n.Annotations[clusterv1.TaintsFromMachineAnnotation] = "example.com/gpu" }, clusterv1.TaintsFromMachineAnnotation),
	)

	It("escapes a label key that is not valid, of a pool that the webhooks did not check", func() {
		Expect(text(selecting("odd", `"].filter(k, false) + ["`))).To(ContainSubstring(`["\"].filter(k, false) + [\"",`))
	})
})
