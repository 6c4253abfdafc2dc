package pool_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

var _ = DescribeTable("The older one of two rendered configs is", func(older, younger *poolv1.MachineConfig) {
	Expect(pool.CompareAge(older, younger)).To(Equal(-1))
	Expect(pool.CompareAge(younger, older)).To(Equal(1))
	Expect(pool.CompareAge(older, older)).To(BeZero())
},
	Entry("the one that was created in an earlier second", created("z", 1, "100"), created("a", 2, "99")),
	Entry("the one with the earlier resource version, if both were created in one second", created("z", 1, "99"), created("a", 1, "100")),
	Entry("the one whose name is first, if neither differs", created("a", 1, "99"), created("b", 1, "99")),
	Entry("the one whose name is first, if they are from files", created("a", 1, ""), created("b", 1, "")),
)

func created(name string, second int64, version string) *poolv1.MachineConfig {
	return &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version, CreationTimestamp: metav1.NewTime(time.Unix(second, 0))}}
}
