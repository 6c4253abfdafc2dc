package registration_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

var _ = Describe("The name of a Node", func() {
	type change = func(*registration.Naming)
	onRecord := func(name string) change {
		return func(n *registration.Naming) { n.Config.Status.NodeRef = bootstrapv1.NodeReference{Name: name} }
	}
	hostOnRecord := func(name string) change {
		return func(n *registration.Naming) { n.Config.Status.HostRef = bootstrapv1.HostReference{Name: name} }
	}
	host := func(name string) change { return func(n *registration.Naming) { n.Host = name } }
	byHost := func(n *registration.Naming) { n.Config.Spec.NodeNameSource = bootstrapv1.NodeNameSourceHost }
	nodeRef := func(name string) change { return func(n *registration.Naming) { n.Machine.Status.NodeRef.Name = name } }
	withoutMachine := func(n *registration.Naming) { n.Machine = nil }
	enrolled := func(n *registration.Naming) {
		n.Machine, n.Config.OwnerReferences = nil, nil
		n.Config.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeEnrollment, NodeName: "h1", Enrollment: bootstrapv1.EnrolledHost{Name: "edge"}}
	}

	DescribeTable("is",
		func(want string, changes ...change) {
			n := registration.Naming{
				Config: &bootstrapv1.PoolbootConfig{
					ObjectMeta: metav1.ObjectMeta{Name: "c1", OwnerReferences: []metav1.OwnerReference{{Kind: "Machine", Name: "m1"}}},
					Spec:       bootstrapv1.PoolbootConfigSpec{BootSpec: bootstrapv1.BootSpec{NodeNameSource: bootstrapv1.NodeNameSourceMachine}},
				},
				Machine: &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m1"}},
			}
			for _, c := range changes {
				c(&n)
			}
			Expect(registration.Name(n)).To(Equal(want))
		},
		Entry("the name of the Machine", "m1"),
		Entry("the name of the Machine, whatever the name of the host is", "m1", host("rack1-u12"), hostOnRecord("rack1-u12")),
		Entry("the name of the Machine, also when the Machine no longer exists", "m1", withoutMachine),
		Entry("the name of the host, with nodeNameSource: Host", "rack1-u12", byHost, host("rack1-u12")),
		Entry("the name of the host on record, with nodeNameSource: Host", "rack1-u12", byHost, hostOnRecord("rack1-u12")),
		Entry("unknown until a host is chosen, with nodeNameSource: Host", "", byHost),
		Entry("unknown until a host is chosen, also when the Machine no longer exists", "", byHost, withoutMachine),
		Entry("the name on record, not the one that Cluster API found", "recorded", onRecord("recorded"), nodeRef("found")),
		Entry("the name on record, when the host is unknown", "recorded", byHost, onRecord("recorded")),
		Entry("the name on record, when the host on record boots", "rack1-u12", byHost, onRecord("rack1-u12"), hostOnRecord("rack1-u12"), host("rack1-u12")),
		Entry("the name of the new host, when another host boots, with nodeNameSource: Host", "rack1-u13", byHost, onRecord("rack1-u12"), hostOnRecord("rack1-u12"), host("rack1-u13")),
		Entry("the name on record, when another host boots, with nodeNameSource: Machine", "m1", onRecord("m1"), hostOnRecord("rack1-u12"), host("rack1-u13")),
		Entry("the name that Cluster API found, when no name is on record", "rack1-u12", byHost, nodeRef("rack1-u12")),
		Entry("spec.host.nodeName, of a host without a Machine", "h1", enrolled, host("rack1-u12")),
		Entry("spec.host.nodeName, of a host without a Machine, also with nodeNameSource: Host", "h1", enrolled, byHost, host("rack1-u12")),
	)
})
