package rollout_test

import (
	"math"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

var _ = Describe("Hosts that are gone and not replaced", func() {
	It("count as unavailable until their replacements have joined", func() {
		hosts := rollout.NotReplaced(&poolv1.MachineConfigPool{Status: poolv1.MachineConfigPoolStatus{CapacityHostCount: 3}}, 1)
		Expect(hosts).To(HaveLen(2))
		Expect(hosts[0].IsUnavailable).To(BeTrue())
		Expect(hosts[0].Name).To(Equal("gone host 1"))
	})

	It("do not use up the memory of the manager if a user sets the capacity of the pool to the largest number", func() {
		Expect(rollout.NotReplaced(&poolv1.MachineConfigPool{Status: poolv1.MachineConfigPoolStatus{CapacityHostCount: math.MaxInt32}}, 1)).To(HaveLen(10_000))
	})
})
