package provider

import (
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/format"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

var _ = Describe("A Machine", func() {
	It("gets a data Secret with a pointer to the configuration of its pool", func(ctx SpecContext) {
		cluster := &clusterv1.Cluster{
			ObjectMeta: meta("edge"),
			Spec: clusterv1.ClusterSpec{
				ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "edge.example.org", Port: 6443},
				InfrastructureRef:    clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "ExampleCluster", Name: "edge"},
			},
		}
		Expect(c.Create(ctx, cluster)).To(Succeed())
		// Cluster API's Cluster controller sets both.
		cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
		conditions.Set(cluster, metav1.Condition{
			Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue, Reason: clusterv1.ClusterControlPlaneInitializedReason,
		})
		Expect(c.Status().Update(ctx, cluster)).To(Succeed())
		for _, role := range []string{"worker", "infra"} {
			Expect(c.Create(ctx, &poolv1.MachineConfigPool{
				ObjectMeta: meta(role),
				Spec:       poolv1.MachineConfigPoolSpec{ClusterName: cluster.Name, PoolRole: role},
			})).To(Succeed())
		}

		machine := &clusterv1.Machine{
			ObjectMeta: meta("infra-0"),
			Spec: clusterv1.MachineSpec{
				ClusterName: cluster.Name,
				Bootstrap: clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{
					APIGroup: bootstrapv1.GroupVersion.Group, Kind: "PoolbootConfig", Name: "infra-0",
				}},
				InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "ExampleMachine", Name: "infra-0"},
			},
		}
		machine.Labels = map[string]string{clusterv1.ClusterNameLabel: cluster.Name, "node-role.kubernetes.io/infra": ""}
		Expect(c.Create(ctx, machine)).To(Succeed())
		config := &bootstrapv1.PoolbootConfig{ObjectMeta: meta("infra-0")}
		config.Labels = map[string]string{clusterv1.ClusterNameLabel: cluster.Name}
		config.OwnerReferences = []metav1.OwnerReference{ // Cluster API's Machine controller sets it
			*metav1.NewControllerRef(machine, clusterv1.GroupVersion.WithKind("Machine")),
		}
		config.Spec.Join.Type = bootstrapv1.JoinTypeKubelet
		Expect(c.Create(ctx, config)).To(Succeed())

		Eventually(func() (bootstrapv1.PoolbootConfigStatus, error) {
			err := c.Get(ctx, client.ObjectKeyFromObject(config), config)
			return config.Status, err
		}).Should(HaveField("Initialization.DataSecretCreated", Equal(ptr.To(true))), func() string { return format.Object(config.Status.Conditions, 1) })
		Expect(config.Status.PoolRole).To(Equal("infra"))

		secret := &corev1.Secret{}
		Expect(c.Get(ctx, client.ObjectKey{Namespace: config.Namespace, Name: config.Status.DataSecretName}, secret)).To(Succeed())
		Expect(secret.Data).To(HaveKeyWithValue("format", []byte("ignition")))
		var pointer struct {
			Ignition struct {
				Config struct {
					Merge []struct{ Source string }
				}
			}
		}
		Expect(json.Unmarshal(secret.Data["value"], &pointer)).To(Succeed())
		Expect(pointer.Ignition.Config.Merge).To(ConsistOf(HaveField("Source", HavePrefix(serverURL+"/config/infra/default/infra-0/"))))
	})
})

var _ = Describe("A MachineConfig", func() {
	It("is refused by Poolboot's webhook when its Butane can't be translated", func(ctx SpecContext) {
		err := c.Create(ctx, &poolv1.MachineConfig{ObjectMeta: meta("51-infra"), Spec: poolv1.MachineConfigSpec{Butane: "variant: none"}})
		Expect(err).To(Satisfy(apierrors.IsInvalid))
		Expect(err).To(MatchError(And(
			ContainSubstring(`admission webhook "validation.machineconfig.poolboot.io" denied the request`), ContainSubstring("spec.butane"))))
	})
})

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}
}
