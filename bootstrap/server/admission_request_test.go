package server

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
)

// countedAdmissions is an AdmissionRecorder that counts its writes.
type countedAdmissions struct{ writes int }

func (c *countedAdmissions) RecordAdmissionRequest(context.Context, Enrollment, string, string, time.Time) error {
	c.writes++
	return nil
}

var _ = Describe("A name that is requested from many addresses", func() {
	edge := types.NamespacedName{Namespace: "site", Name: "edge"}
	host := admissionRequest{config: types.NamespacedName{Namespace: "site", Name: "edge-7"}, pointerID: "enrolled-7"}
	var (
		counted *countedAdmissions
		clock   time.Time
		r       *recording
	)
	BeforeEach(func() {
		counted, clock = &countedAdmissions{}, time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
		r = newRecording(nil, counted, func() time.Time { return clock })
	})
	from := func(ctx SpecContext, i int, enrollment Enrollment) string {
		host.address = fmt.Sprintf("2001:db8::%x", i+1)
		_, err := r.recordAdmissionRequest(ctx, enrollment, host)
		Expect(err).NotTo(HaveOccurred())
		return host.address
	}

	It("causes one write before the decision, even if the cache does not show the request", func(ctx SpecContext) {
		for i := range 100 {
			from(ctx, i, Enrollment{NamespacedName: edge})
		}
		Expect(counted.writes).To(Equal(1))
	})

	It("causes four writes per minute while it is refused", func(ctx SpecContext) {
		refused := Enrollment{NamespacedName: edge, Requests: map[string]EnrollmentRequest{}}
		for i := range 60 { // seconds
			clock = clock.Add(time.Second)
			before := counted.writes
			if address := from(ctx, i, refused); counted.writes > before {
				refused.Requests["edge-7"] = EnrollmentRequest{Time: clock, Address: address, Refused: "all 2 uses are taken"}
			}
		}
		Expect(counted.writes).To(Equal(4))
	})
})
