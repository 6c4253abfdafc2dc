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

func TestWritten(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Versions that were written")
}

var _ = Describe("A cached object", func() {
	version := func(uid types.UID, version string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: uid, ResourceVersion: version}}
	}

	DescribeTable("is behind",
		func(cached *corev1.Node, behind bool) {
			var v Tracker
			v.Note(version("a", "99"))
			v.Note(version("a", "100"))
			Expect(v.Behind(cached)).To(Equal(behind))
		},
		Entry("before the write", version("a", "99"), true),
		Entry("not with the write", version("a", "100"), false),
		Entry("not with somebody else's later write", version("a", "101"), false),
		Entry("not when it is another object", version("b", "99"), false),
		Entry("not when its version can't be compared", version("a", ""), false),
	)

	It("is all there is when it lags for too long", func() {
		clock := clocktesting.NewFakeClock(time.Now())
		v := Tracker{last: cache.NewExpiringWithClock(clock)}
		v.once.Do(func() {})
		v.Note(version("a", "100"))
		clock.Step(Patience + time.Second)
		Expect(v.Behind(version("a", "99"))).To(BeFalse())
	})
})
