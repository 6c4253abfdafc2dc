package boot

import (
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

var _ = Describe("A boot is reconciled", func() {
	var (
		s    *setting
		want []ctrl.Request
	)
	BeforeEach(func() {
		s = newSetting()
		s.config.Status.Requests.RequestedTime = microTime(time.Now())
		want = []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: namespace, Name: machineName}}}
	})

	It("when its Machine changes", func(ctx SpecContext) {
		Expect(workload.ConfigOfMachine(ctx, s.machine)).To(Equal(want))
		s.machine.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{
			APIGroup: bootstrapv1.GroupVersion.Group, Kind: "KubeadmConfig", Name: machineName}
		Expect(workload.ConfigOfMachine(ctx, s.machine)).To(BeEmpty())
	})

	It("when its host changes", func(ctx SpecContext) {
		w := s.world()
		Expect(workload.ConfigOfHost(ctx, w.management, s.host)).To(Equal(want))
		s.host.Spec.ConsumerRef = nil
		Expect(workload.ConfigOfHost(ctx, w.management, s.host)).To(BeEmpty())
		s.host.Annotations = map[string]string{poolv1.HostPoolAnnotation: "infra"}
		Expect(workload.ConfigOfHost(ctx, w.management, s.host)).To(HaveExactElements(HaveField("Name", hostName)), "the config of a host without a Machine")
	})

	It("when the HardwareData of its host changes", func(ctx SpecContext) {
		w := s.world()
		data := &bmov1alpha1.HardwareData{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: hostName}}
		Expect(workload.ConfigOfHardware(ctx, w.management, data)).To(Equal(want))
		data.Name = "another"
		Expect(workload.ConfigOfHardware(ctx, w.management, data)).To(BeEmpty())
	})

	It("when the Secret with the network data of its host changes", func(ctx SpecContext) {
		s.host.Spec.PreprovisioningNetworkDataName, s.host.Spec.NetworkData = "inspection", &corev1.SecretReference{Name: "network"}
		w := s.world()
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "network"}}
		Expect(workload.ConfigsOfNetworkData(ctx, w.management, secret)).To(Equal(want))
		secret.Namespace = "another"
		Expect(workload.ConfigsOfNetworkData(ctx, w.management, secret)).To(BeEmpty())
		secret.Namespace, secret.Name = namespace, "inspection"
		Expect(workload.ConfigsOfNetworkData(ctx, w.management, secret)).To(BeEmpty(), "it is not used")
	})

	It("when its cluster or a pool of its cluster changes, as long as the boot needs something", func(ctx SpecContext) {
		w := s.world()
		Expect(toConfigs(w)(ctx, s.worker)).To(Equal(want))
		Expect(toConfigs(w)(ctx, s.cluster)).To(Equal(want))
		s.worker.Spec.ClusterName = "another"
		Expect(toConfigs(w)(ctx, s.worker)).To(BeEmpty())
		change(ctx, w.management, w.config(ctx), func(c *bootstrapv1.PoolbootConfig) {
			c.Annotations = map[string]string{bootstrapv1.TokenStateAnnotation: string(bootstrapv1.TokenStateRevoked)}
		})
		Expect(toConfigs(w)(ctx, s.cluster)).To(BeEmpty())
	})

	It("only when its host changes, while no host has sent a request", func(ctx SpecContext) {
		s.config.Status.Requests.RequestedTime = nil
		w := s.world()
		Expect(workload.ConfigOfHost(ctx, w.management, s.host)).To(Equal(want))
		Expect(toConfigs(w)(ctx, s.worker)).To(BeEmpty())
	})
})

// toConfigs returns the map function of the watches on Clusters and pools.
func toConfigs(w *world) handler.MapFunc { return workload.MapToConfigs(w.management, NeedsCluster) }
