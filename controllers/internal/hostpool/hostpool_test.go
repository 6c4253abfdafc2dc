package hostpool_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/hostpool"
)

var _ = Describe("The pool of a host without a Machine", func() {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "site", Name: name} }
	aPool := func(name string) *poolv1.MachineConfigPool {
		return &poolv1.MachineConfigPool{ObjectMeta: meta(name), Spec: poolv1.MachineConfigPoolSpec{ClusterName: "c1", PoolRole: "infra", HostTemplateRef: poolv1.HostTemplateReference{Name: "hosts"}}}
	}
	leaving := func(name string) *poolv1.MachineConfigPool {
		p := aPool(name)
		p.Finalizers, p.DeletionTimestamp = []string{"example.com/keep"}, ptr.To(metav1.Now())
		return p
	}

	DescribeTable("is the one that has the role",
		func(ctx SpecContext, name, reason string, pools ...client.Object) {
			scheme := runtime.NewScheme()
			for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, bootstrapv1.AddToScheme, poolv1.AddToScheme} {
				Expect(add(scheme)).To(Succeed())
			}
			template := &bootstrapv1.PoolbootConfigTemplate{ObjectMeta: meta("hosts")}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(pools, &clusterv1.Cluster{ObjectMeta: meta("c1")}, template)...).Build()
			place, err := hostpool.Find(ctx, c, client.ObjectKey{Namespace: "site", Name: "c1"}, "infra")
			Expect(err).NotTo(HaveOccurred())
			if reason != "" {
				Expect(place.Obstacle()).To(HaveField("Reason", reason))
				return
			}
			Expect(place.Obstacle()).To(BeNil())
			Expect(place.Pool.Name).To(Equal(name))
		},
		Entry("of its Cluster", "a", "", aPool("a")),
		Entry("and takes the place of one that is being deleted", "b", "", leaving("a"), aPool("b")),
		Entry("but none, when there is none", "", poolv1.EnrollmentPoolNotFoundReason),
		Entry("but none that is being deleted", "", poolv1.EnrollmentPoolNotFoundReason, leaving("a")),
		Entry("but neither of two", "", poolv1.DuplicateRoleReason, aPool("a"), aPool("b")),
	)

	DescribeTable("takes no hosts by a template with", func(spoil func(*bootstrapv1.BootSpec)) {
		template := &bootstrapv1.PoolbootConfigTemplate{ObjectMeta: meta("hosts")}
		place := hostpool.Target{Cluster: &clusterv1.Cluster{ObjectMeta: meta("c1")}, Pool: aPool("a"), Template: template}
		Expect(place.Obstacle()).To(BeNil())
		spoil(&template.Spec.Template.Spec)
		Expect(place.Obstacle()).To(HaveField("Reason", poolv1.EnrollmentTemplateNotUsableReason))
	},
		Entry("an inline source", func(s *bootstrapv1.BootSpec) { s.ConfigSource.Type = bootstrapv1.ConfigSourceTypeInline }),
		Entry("another pool", func(s *bootstrapv1.BootSpec) { s.PoolRole = "gpu" }),
		Entry("a pool that is kept for Machines", func(s *bootstrapv1.BootSpec) { s.PoolRetention = bootstrapv1.PoolRetentionHost }),
	)

	It("gives its template's metadata to the record of each host, but no annotation of Poolboot's own", func() {
		template := &bootstrapv1.PoolbootConfigTemplate{ObjectMeta: meta("hosts")}
		template.Spec.Template.ObjectMeta.Labels = map[string]string{"example.com/site": "north"}
		template.Spec.Template.ObjectMeta.Annotations = map[string]string{"example.com/owner": "metal", poolv1.HostAddressesAnnotation: "192.0.2.7",
			bootstrapv1.TokenStateAnnotation: string(bootstrapv1.TokenStateRevoked)}
		place := hostpool.Target{Cluster: &clusterv1.Cluster{ObjectMeta: meta("c1")}, Pool: aPool("a"), Template: template}
		config := place.NewConfig("edge-7", bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeEnrollment, NodeName: "edge-7", Enrollment: bootstrapv1.EnrolledHost{Name: "edge", Address: "192.0.2.7"}})
		Expect(config.Labels).To(HaveKeyWithValue("example.com/site", "north"))
		Expect(config.Annotations).To(Equal(map[string]string{"example.com/owner": "metal"}))
	})
})
