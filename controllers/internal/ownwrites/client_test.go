package ownwrites

import (
	"context"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var _ = Describe("Status patches of one object by several controllers", func() {
	It("cause one request, and conflicts without requests", func(ctx SpecContext) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a"}}
		var requests atomic.Int32
		c := NewClient(fake.NewClientBuilder().WithObjects(node).WithStatusSubresource(node).WithInterceptorFuncs(interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				requests.Add(1)
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		}).Build())
		Expect(c.Get(ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
		patch := func(phase corev1.NodePhase) error {
			changed := node.DeepCopy()
			changed.Status.Phase = phase
			return c.Status().Patch(ctx, changed, client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{}))
		}
		var running sync.WaitGroup
		var conflicts atomic.Int32
		for range 8 {
			running.Go(func() {
				if err := patch(corev1.NodeRunning); apierrors.IsConflict(err) {
					conflicts.Add(1)
				}
			})
		}
		running.Wait()
		Expect(conflicts.Load()).To(BeEquivalentTo(7))
		Expect(requests.Load()).To(BeEquivalentTo(1))
		Expect(c.Get(ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
		Expect(patch(corev1.NodeTerminated)).To(Succeed())
		Expect(requests.Load()).To(BeEquivalentTo(2))
	})
})
