package outlook_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

var _ = DescribeTable("Every kind of host has remedies that are possible for it",
	func(config *bootstrapv1.PoolbootConfig, kind record.HostKind, whose, remove, replace, renew, rotate, relabel string) {
		config.Name = "edge-7"
		Expect(record.HostKindOf(config)).To(Equal(kind))
		Expect(outlook.OwnerOf(config)).To(Equal(whose))
		Expect(outlook.HowToRemove(config)).To(Equal(remove))
		Expect(outlook.HowToReplace(config)).To(Equal(replace))
		Expect(outlook.HowToRenew(config)).To(Equal(renew))
		Expect(outlook.HowToRotate(config)).To(Equal(rotate))
		Expect(outlook.HowToRelabel(config)).To(Equal(relabel))
	},
	Entry("a Machine", &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: "Machine", Name: "infra-x7k2m"}}}},
		record.MachineHost, "Machine infra-x7k2m", "delete Machine infra-x7k2m", "delete Machine infra-x7k2m: a new Machine replaces it", "roll out its MachineDeployment to renew it, see docs/pools.md#renewing-machines",
		"annotate PoolbootConfig edge-7 with poolboot.io/rotate-token and have the host provisioned again, or delete Machine infra-x7k2m",
		"change the labels of the Machine (those of its MachineDeployment) or node.labels and node.labelRules of the PoolbootConfig and the pool"),
	Entry("a BareMetalHost", &bootstrapv1.PoolbootConfig{Spec: bootstrapv1.PoolbootConfigSpec{Host: bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeBareMetalHost, NodeName: "rack1-u12", BareMetalHostName: "rack1-u12"}}},
		record.BareMetalHost, "BareMetalHost rack1-u12", "remove spec.image of BareMetalHost rack1-u12",
		"remove spec.image of BareMetalHost rack1-u12, and set it again when the host is available",
		"remove spec.image of BareMetalHost rack1-u12, and set it again when the host is available",
		"annotate PoolbootConfig edge-7 with poolboot.io/rotate-token and then remove spec.image of BareMetalHost rack1-u12, and set it again when the host is available",
		"change node.labels and node.labelRules of the PoolbootConfig and the pool"),
	Entry("a host that enrolled", &bootstrapv1.PoolbootConfig{Spec: bootstrapv1.PoolbootConfigSpec{Host: bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeEnrollment, NodeName: "edge-7", Enrollment: bootstrapv1.EnrolledHost{Name: "edge"}}}},
		record.EnrolledHost, "PoolbootConfig edge-7", "delete PoolbootConfig edge-7", "delete PoolbootConfig edge-7 and its Node, and install the host again",
		"delete PoolbootConfig edge-7 and its Node, and install the host again",
		"name a Secret with another token in spec.tokenSecretRef of the Enrollment",
		"change node.labels and node.labelRules of the PoolbootConfig and the pool"),
)
