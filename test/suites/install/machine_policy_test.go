package install_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/rights"
)

var _ = Describe("The manager's right to patch Machines", func() {
	It("is limited to pausing health checks, and to ending its own pause", func(ctx SpecContext) {
		asManager := newClientAs(ctx, rights.Manager, nil)
		machine := &clusterv1.Machine{
			ObjectMeta: metav1.ObjectMeta{Namespace: newNamespace(ctx), Name: "machine-1", Annotations: map[string]string{"example.com/a": "b"}},
			Spec: clusterv1.MachineSpec{
				ClusterName: "edge", Bootstrap: clusterv1.Bootstrap{DataSecretName: new("data")},
				InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "Metal3Machine", Name: "machine-1"},
			},
		}
		Expect(k8sClient.Create(ctx, machine)).To(Succeed())
		dryRun := func(by client.Client, change func(*clusterv1.Machine)) error {
			changed := machine.DeepCopy()
			change(changed)
			return by.Patch(ctx, changed, client.MergeFrom(machine), client.DryRunAll)
		}
		set := func(value string) func(*clusterv1.Machine) {
			return func(m *clusterv1.Machine) { m.Annotations[clusterv1.MachineSkipRemediationAnnotation] = value }
		}
		refused := MatchError(ContainSubstring("Poolboot's manager can"))
		Eventually(func() error { return dryRun(asManager, set("")) }).Should(refused)
		Expect(dryRun(asManager, set("poolboot"))).To(Succeed())
		Expect(dryRun(asManager, func(m *clusterv1.Machine) {
			m.Annotations[clusterv1.PreDrainDeleteHookAnnotationPrefix+"/poolboot"] = "poolboot"
		})).To(Succeed())
		for what, change := range map[string]func(*clusterv1.Machine){
			"another annotation": func(m *clusterv1.Machine) { m.Annotations["example.com/a"] = "c" },
			"another hook": func(m *clusterv1.Machine) {
				m.Annotations[clusterv1.PreDrainDeleteHookAnnotationPrefix+"/other"] = "poolboot"
			},
			"a new annotation":     func(m *clusterv1.Machine) { m.Annotations["example.com/c"] = "" },
			"a removed annotation": func(m *clusterv1.Machine) { delete(m.Annotations, "example.com/a") },
			"a label":              func(m *clusterv1.Machine) { m.Labels = map[string]string{"node-role.kubernetes.io/infra": ""} },
			"a finalizer":          func(m *clusterv1.Machine) { m.Finalizers = append(m.Finalizers, "example.com/f") },
			"the spec":             func(m *clusterv1.Machine) { m.Spec.Version = "v1.36.3" },
		} {
			Expect(dryRun(asManager, change)).To(refused, what)
			Expect(dryRun(k8sClient, change)).To(Succeed(), "other clients: "+what)
		}

		remove := func(m *clusterv1.Machine) { delete(m.Annotations, clusterv1.MachineSkipRemediationAnnotation) }
		patch := func(change func(*clusterv1.Machine)) {
			GinkgoHelper()
			before := machine.DeepCopy()
			change(machine)
			Expect(k8sClient.Patch(ctx, machine, client.MergeFrom(before))).To(Succeed())
		}
		patch(set("poolboot"))
		Expect(dryRun(asManager, remove)).To(Succeed())
		patch(set("mine"))
		Expect(dryRun(asManager, remove)).To(refused, "the pause of a user")
		Expect(dryRun(asManager, set("poolboot"))).To(refused, "the pause of a user")
	})
})
