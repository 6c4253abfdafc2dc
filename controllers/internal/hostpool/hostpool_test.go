package hostpool_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/hostpool"
)

var _ = Describe("The pool of a host without a Machine", func() {
	metadata := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "site", Name: name} }
	newPool := func(name string) *poolv1.MachineConfigPool {
		return &poolv1.MachineConfigPool{ObjectMeta: metadata(name), Spec: poolv1.MachineConfigPoolSpec{ClusterName: "c1", PoolRole: "infra", Hosts: poolv1.HostSettings{TemplateRef: poolv1.HostTemplateReference{Name: "hosts"}}}}
	}
	deletedPool := func(name string) *poolv1.MachineConfigPool {
		p := newPool(name)
		p.Finalizers, p.DeletionTimestamp = []string{"example.com/keep"}, ptr.To(metav1.Now())
		return p
	}

	DescribeTable("is the pool with the role",
		func(ctx SpecContext, name, reason string, pools ...client.Object) {
			template := &bootstrapv1.PoolbootConfigTemplate{ObjectMeta: metadata("hosts")}
			c := fake.NewClientBuilder().WithScheme(controllertest.Scheme()).WithObjects(append(pools, &clusterv1.Cluster{ObjectMeta: metadata("c1")}, template)...).Build()
			target, err := hostpool.Find(ctx, c, client.ObjectKey{Namespace: "site", Name: "c1"}, "infra")
			Expect(err).NotTo(HaveOccurred())
			if reason != "" {
				Expect(target.Obstacle()).To(HaveField("Reason", reason))
				return
			}
			Expect(target.Obstacle()).To(BeNil())
			Expect(target.Pool.Name).To(Equal(name))
		},
		Entry("in its Cluster", "a", "", newPool("a")),
		Entry("and replaces a pool that is being deleted", "b", "", deletedPool("a"), newPool("b")),
		Entry("and is missing if there is none", "", poolv1.EnrollmentPoolNotFoundReason),
		Entry("and is missing if it is being deleted", "", poolv1.EnrollmentPoolNotFoundReason, deletedPool("a")),
		Entry("and is missing if two pools have the role", "", poolv1.DuplicateRoleReason, newPool("a"), newPool("b")),
	)

	DescribeTable("takes no hosts if its template has", func(change func(*bootstrapv1.BootSpec)) {
		template := &bootstrapv1.PoolbootConfigTemplate{ObjectMeta: metadata("hosts")}
		target := hostpool.Target{Cluster: &clusterv1.Cluster{ObjectMeta: metadata("c1")}, Pool: newPool("a"), Template: template}
		Expect(target.Obstacle()).To(BeNil())
		change(&template.Spec.Template.Spec)
		Expect(target.Obstacle()).To(HaveField("Reason", poolv1.EnrollmentTemplateNotUsableReason))
	},
		Entry("an inline source", func(s *bootstrapv1.BootSpec) { s.ConfigSource.Type = bootstrapv1.ConfigSourceTypeInline }),
		Entry("another pool role", func(s *bootstrapv1.BootSpec) { s.PoolRole = "gpu" }),
		Entry("a pool retention", func(s *bootstrapv1.BootSpec) { s.PoolRetention = bootstrapv1.PoolRetentionHost }),
	)

	It("copies the metadata of its template to each PoolbootConfig, except Poolboot's annotations", func() {
		template := &bootstrapv1.PoolbootConfigTemplate{ObjectMeta: metadata("hosts")}
		template.Spec.Template.ObjectMeta.Labels = map[string]string{"example.com/site": "north"}
		template.Spec.Template.ObjectMeta.Annotations = map[string]string{"example.com/owner": "metal", poolv1.HostAddressesAnnotation: "192.0.2.7",
			bootstrapv1.TokenStateAnnotation: string(bootstrapv1.TokenStateRevoked)}
		target := hostpool.Target{Cluster: &clusterv1.Cluster{ObjectMeta: metadata("c1")}, Pool: newPool("a"), Template: template}
		host := bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeEnrollment, NodeName: "edge-7", Enrollment: bootstrapv1.EnrolledHost{Name: "edge"}}
		config := target.NewConfig("edge-7", host, &poolv1.Enrollment{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{clusterv1.WatchLabel: "blue"}}})
		Expect(config.Labels).To(And(HaveKeyWithValue("example.com/site", "north"), HaveKeyWithValue(clusterv1.WatchLabel, "blue")))
		Expect(config.Annotations).To(Equal(map[string]string{"example.com/owner": "metal"}))
	})
})
