package ownwrites

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestOwnWrites(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Tracking of a reconciler's own writes")
}

var _ = Describe("An object from a cache", func() {
	newNode := func(uid types.UID, version string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: uid, ResourceVersion: version}}
	}

	DescribeTable("is stale if it is older than the recorded write",
		func(cached *corev1.Node, stale bool) {
			var tracker Tracker
			tracker.Record(newNode("a", "99"))
			tracker.Record(newNode("a", "100"))
			Expect(tracker.IsStale(cached)).To(Equal(stale))
		},
		Entry("the version before the write", newNode("a", "99"), true),
		Entry("the version of the write", newNode("a", "100"), false),
		Entry("the version of a later write by another client", newNode("a", "101"), false),
		Entry("another object", newNode("b", "99"), false),
		Entry("a version that cannot be compared", newNode("a", ""), false),
	)

	It("is used after the maximum lag, even if it looks older", func() {
		clock := clocktesting.NewFakeClock(time.Now())
		tracker := Tracker{versions: cache.NewExpiringWithClock(clock)}
		tracker.once.Do(func() {})
		tracker.Record(newNode("a", "100"))
		clock.Step(MaxLag + time.Second)
		Expect(tracker.IsStale(newNode("a", "99"))).To(BeFalse())
	})
})
