package bootstrapdata

import (
	"maps"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

var _ = Describe("A copied pointer id", func() {
	It("is reported by one event on each of the two objects", func(ctx SpecContext) {
		w := newWorld(0)
		w.config.UID, w.config.CreationTimestamp = "own", metav1.NewTime(time.Now().Add(-time.Hour))
		w.config.Annotations[bootstrapv1.PointerIDAnnotation] = "id"
		w.start()
		w.reconcile(ctx)
		Expect(w.events.Events).NotTo(Receive(), "one PoolbootConfig is not a pair")
		for _, uid := range []types.UID{"copy-1", "copy-2"} {
			copied := &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: string(uid), UID: uid,
				CreationTimestamp: metav1.Now(), Annotations: maps.Clone(w.config.Annotations)}}
			copied.Annotations[bootstrapv1.TokenStateAnnotation] = string(bootstrapv1.TokenStateRevoked)
			Expect(w.Create(ctx, copied)).To(Succeed())
			for range 2 {
				_, err := w.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(copied)})
				Expect(err).NotTo(HaveOccurred())
				w.reconcile(ctx)
			}
			Expect(w.events.Events).To(Receive(And(HavePrefix("Warning "+bootstrapv1.EventPointerIDNotUnique), ContainSubstring("PoolbootConfig metal/rack1-u12"))))
			Expect(w.events.Events).To(Receive(And(HavePrefix("Warning "+bootstrapv1.EventPointerIDNotUnique), ContainSubstring("PoolbootConfig elsewhere/"+string(uid)))))
			Expect(w.events.Events).NotTo(Receive())
		}
	})

	It("is not the one that all adopted hosts have", func(ctx SpecContext) {
		w := newWorld(0)
		w.config.Annotations = map[string]string{bootstrapv1.PointerIDAnnotation: bootstrapv1.AdoptedPointerID}
		w.start()
		other := w.config.DeepCopy()
		other.Name, other.UID, other.ResourceVersion = "cp-2", "other", ""
		Expect(w.Create(ctx, other)).To(Succeed())
		for _, config := range []*bootstrapv1.PoolbootConfig{w.config, other} {
			Expect(w.reconciler.ReportDuplicates(ctx, config)).To(Succeed())
		}
		Expect(w.events.Events).NotTo(Receive())
	})
})
