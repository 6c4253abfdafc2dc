package bootstrapdata

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

var _ = It("A Machine whose data template has network data gets no data Secret, so its host stays off, until its pool says what applies it", func(ctx SpecContext) {
	metal3 := func(kind, name string, spec map[string]any) client.Object {
		o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		o.SetAPIVersion("infrastructure.cluster.x-k8s.io/v1beta2")
		o.SetKind(kind)
		o.SetNamespace(namespace)
		o.SetName(name)
		return o
	}
	machine, worker := newMachine(nil), newPool(poolv1.RoleWorker)
	machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "Metal3Machine", Name: "m3m"}
	s := newSite(newCluster(), machine, newConfig(), worker,
		&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "metal3machines.infrastructure.cluster.x-k8s.io", Labels: map[string]string{"cluster.x-k8s.io/v1beta2": "v1beta2"}}},
		metal3("Metal3Machine", "m3m", map[string]any{"dataTemplate": map[string]any{"name": "rack"}}),
		metal3("Metal3DataTemplate", "rack", map[string]any{"networkData": map[string]any{"links": map[string]any{}}}))
	config := s.settle(ctx)
	Expect(config.Status.DataSecretName).To(BeEmpty())
	const message = "spec.networkData of Metal3DataTemplate site/rack has network data for the host, and MachineConfigPool worker does not say what applies it: " +
		"set its spec.hosts.networkRenderer to SystemdNetworkd, NetworkManager or, for a host that uses DHCP, None"
	Expect(conditions.Get(config, bootstrapv1.DataSecretAvailableCondition)).To(And(HaveField("Status", metav1.ConditionFalse),
		HaveField("Reason", bootstrapv1.NetworkRendererNotSetReason), HaveField("Message", message)))
	Expect(s.newEvents()).To(ContainElement("Warning NetworkRendererNotSet " + message))
	Expect(s.Get(ctx, key, &corev1.Secret{})).NotTo(Succeed())
	Expect(s.reconcile(ctx)()).To(HaveField("RequeueAfter", time.Minute), "1,000 such Machines read their data templates from the API server")

	worker.Spec.Hosts.NetworkRenderer = poolv1.NetworkRendererSystemdNetworkd
	Expect(s.Update(ctx, worker)).To(Succeed())
	Expect(s.settle(ctx).Status.DataSecretName).To(Equal(machineName))
})
