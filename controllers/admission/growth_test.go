package admission

import (
	"fmt"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/validation"
)

var _ = Describe("The cost of a MachineConfigPool", func() {
	It("grows with the number of the other pools of its Cluster, and not with its square", func() {
		poolOf := func(i int) poolv1.MachineConfigPool {
			role := fmt.Sprintf("role-%d", i)
			return poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: role}, Spec: poolv1.MachineConfigPoolSpec{ClusterName: "edge", PoolRole: role,
				NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/" + role: ""}}}}
		}
		cost := func(count int) time.Duration {
			own, others := poolOf(0), make([]poolv1.MachineConfigPool, count)
			for i := range others {
				others[i] = poolOf(i + 1)
			}
			var before, after syscall.Rusage
			Expect(syscall.Getrusage(syscall.RUSAGE_SELF, &before)).To(Succeed())
			Expect(validation.MachineConfigPool(&own, others)).To(BeEmpty())
			Expect(syscall.Getrusage(syscall.RUSAGE_SELF, &after)).To(Succeed())
			return time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
		}
		few := max(cost(300), 4*time.Millisecond)
		Expect(cost(8*300).Seconds()/few.Seconds()).To(BeNumerically("<", 30), "64 if all are compared in pairs")
	})
})
