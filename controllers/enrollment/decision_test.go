package enrollment

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/hostpool"
)

var _ = Describe("A host that presents an enrollment token", func() {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

	// fresh returns the facts of a host that sends its first request, with one of two uses left.
	fresh := func() *facts {
		return &facts{
			namespace: "site", name: "edge-7",
			request: poolv1.EnrollmentRequest{Address: "192.0.2.7", TokenSHA256: "of-the-token"},
			spec:    poolv1.EnrollmentSpec{PoolRole: "infra", NamePattern: "edge-*", MaxUses: 2, ExpirationTime: metav1.Time{Time: now.Add(time.Hour)}}, admitted: []string{"edge-1"}, tokenSHA256: "of-the-token",
			pointerID: "enrolled-7",
			now:       now,
		}
	}
	// known returns the facts of a host that was admitted, and sent a request a minute ago.
	known := func() *facts {
		f := fresh()
		f.admitted = append(f.admitted, "edge-7")
		f.config = &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{
			Name: "edge-7", CreationTimestamp: metav1.Time{Time: now.Add(-time.Hour)},
			Annotations: map[string]string{
				bootstrapv1.PointerIDAnnotation: "enrolled-7", bootstrapv1.TokenHashAnnotation: "of-the-token", bootstrapv1.EnrolledFromAnnotation: "192.0.2.7",
			},
		}}
		f.config.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeEnrollment, NodeName: "edge-7", Enrollment: bootstrapv1.EnrolledHost{Name: "edge"}}
		f.config.Status.Requests.RequestedTime = &metav1.MicroTime{Time: now.Add(-time.Minute)}
		return f
	}

	nodeOf := func(madeFor, kubelet string) *corev1.Node {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-7"}}
		if madeFor != "" {
			node.Annotations = map[string]string{poolv1.NodeConfigAnnotation: madeFor}
		}
		node.Status.NodeInfo.KubeletVersion = kubelet
		return node
	}

	DescribeTable("for the first time",
		func(expected verdict, why string, change func(*facts)) {
			f := fresh()
			change(f)
			became, because := decideRequest(*f)
			Expect(became).To(Equal(expected))
			Expect(because).To(ContainSubstring(why))
		},
		Entry("is admitted", admit, "", func(*facts) {}),
		Entry("is refused when every use is taken", refuse, "all 1 uses", func(f *facts) { f.spec.MaxUses = 1 }),
		Entry("is admitted when its own name is one of the uses, as after a crash", admit, "", func(f *facts) { f.spec.MaxUses, f.admitted = 1, []string{"edge-7"} }),
		Entry("is refused when the token has expired", refuse, "expired", func(f *facts) { f.spec.ExpirationTime = metav1.Time{Time: now} }),
		Entry("is refused with a name that does not match the pattern", refuse, "names like edge-*", func(f *facts) { f.name = "core-7" }),
		Entry("is refused with a name that no Node can have", refuse, "name of a Node", func(f *facts) { f.name, f.spec.NamePattern = "Edge_7", "*" }),
		Entry("is refused with the API server's name", refuse, "the API server's Service", func(f *facts) { f.name, f.spec.NamePattern = "kubernetes.default.svc", "*" }),
		Entry("is refused with the name of the machine itself", refuse, "localhost", func(f *facts) { f.name, f.spec.NamePattern = "localhost", "*" }),
		Entry("is refused with the name of the control plane endpoint", refuse, "control plane endpoint", func(f *facts) {
			f.name, f.spec.NamePattern, f.cluster = "api.site.example.com", "*.site.example.com", access.Cluster{Endpoints: []string{"API.site.example.com"}}
		}),
		Entry("is refused with the name of a Node that was not pre-registered", refuse, "Node edge-7 already exists", func(f *facts) { f.node = nodeOf("", "") }),
		Entry("is refused with the name of a Node that was pre-registered for another PoolbootConfig", refuse, "already exists", func(f *facts) { f.node = nodeOf("site/other", "") }),
		Entry("is refused with the name of the Node of an earlier host that joined", refuse, "already exists", func(f *facts) { f.node = nodeOf("site/edge-7", "v1.36.3") }),
		Entry("is admitted when the Node was pre-registered for a host with this name that never joined", admit, "", func(f *facts) { f.node = nodeOf("site/edge-7", "") }),
		Entry("is refused with a token that the Secret no longer contains", refuse, "not the one in the Secret", func(f *facts) { f.request.TokenSHA256 = "of-another" }),
		Entry("is refused while the Secret is not valid", refuse, "not the one in the Secret", func(f *facts) { f.request.TokenSHA256, f.tokenSHA256 = "", "" }),
		Entry("is refused by a pool that admits only Machines", refuse, "admits only Machines", func(f *facts) { f.obstacle = &hostpool.Obstacle{Message: "it admits only Machines"} }),
	)

	DescribeTable("after it was admitted",
		func(expected verdict, why string, change func(*facts)) {
			f := known()
			change(f)
			became, because := decideRequest(*f)
			Expect(became).To(Equal(expected))
			Expect(because).To(ContainSubstring(why))
		},
		Entry("does not count as another use", forget, "", func(*facts) {}),
		Entry("continues although every use is taken", forget, "", func(f *facts) { f.spec.MaxUses = 1 }),
		Entry("counts as another host when it sends a request from another address", refuse, "another host with this name", func(f *facts) { f.request.Address = "192.0.2.8" }),
		Entry("is the same host with a new address after a long silence", relocate, "", func(f *facts) {
			f.request.Address, f.config.Status.Requests.RequestedTime = "192.0.2.8", &metav1.MicroTime{Time: now.Add(-relocationDelay)}
		}),
		Entry("is not silent while it installs what it was served", refuse, "another host with this name", func(f *facts) {
			f.request.Address, f.config.Status.Requests.RequestedTime = "192.0.2.8", &metav1.MicroTime{Time: now.Add(-relocationDelay)}
			f.config.Status.Requests.ServedTime = &metav1.MicroTime{Time: now.Add(-time.Minute)}
		}),
		Entry("is refused when a host with its name has joined", refuse, "has joined", func(f *facts) {
			f.config.Annotations[bootstrapv1.TokenStateAnnotation] = string(bootstrapv1.TokenStateRevoked)
		}),
		Entry("is refused when it presented another token before", refuse, "earlier token", func(f *facts) {
			f.config.Annotations[bootstrapv1.TokenHashAnnotation] = "of-another"
		}),
		Entry("waits while its PoolbootConfig is being deleted", wait, "", func(f *facts) { f.config.DeletionTimestamp = &metav1.Time{Time: now} }),
		Entry("is refused with the name of a Machine's PoolbootConfig", refuse, "belongs to another host", func(f *facts) {
			f.config.Annotations, f.config.Spec.Host = map[string]string{bootstrapv1.PointerIDAnnotation: "machine-uid"}, bootstrapv1.HostWithoutMachine{}
		}),
	)

	DescribeTable("has its last contact when it sent a request, unless only a wrong clock explains that time:", func(asked, heard time.Duration) {
		f := known()
		f.config.Status.Requests.RequestedTime = &metav1.MicroTime{Time: now.Add(asked)}
		Expect(lastContact(f.config, now)).To(BeTemporally("==", now.Add(heard)))
	},
		Entry("a minute ago", -time.Minute, -time.Minute),
		Entry("by a clock that is slightly ahead", time.Minute, time.Minute),
		Entry("in a year", 365*24*time.Hour, -time.Hour),
	)
})
