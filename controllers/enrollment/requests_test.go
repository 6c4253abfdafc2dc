package enrollment

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

var _ = Describe("The requests of an Enrollment", func() {
	It("are removed some time after they were refused", func(ctx SpecContext) {
		w := newWorld(2)
		w.settle(ctx)
		w.ask(ctx, "core-7")
		Expect(w.settle(ctx).Status.Requests).To(HaveLen(1))
		later := w.manager(w)
		later.Now = func() time.Time { return time.Now().Add(refusalTTL) }
		Expect(later.Reconcile(ctx, ctrl.Request{NamespacedName: key})).Error().NotTo(HaveOccurred())
		Expect(w.enrollment(ctx).Status.Requests).To(BeEmpty())
	})

	It("are removed if their time is in the future, which only a wrong clock explains", func(ctx SpecContext) {
		w := newWorld(2)
		w.settle(ctx)
		e := w.enrollment(ctx)
		before := e.DeepCopy()
		e.Status.Requests = []poolv1.EnrollmentRequest{{Name: "edge-1", Address: "192.0.2.7", TokenSHA256: strings.Repeat("0", 64),
			RequestedTime: metav1.NewMicroTime(time.Now().AddDate(50, 0, 0))}}
		Expect(w.Status().Patch(ctx, e, client.MergeFrom(before))).To(Succeed())
		Expect(w.settle(ctx).Status.Requests).To(BeEmpty())
	})

	It("are refused if the API server refuses the PoolbootConfig, with a message that fits into the status, and others are admitted", func(ctx SpecContext) {
		w := newWorld(10)
		w.settle(ctx)
		r := w.manager(w)
		r.Client = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if o.GetName() == "edge-1" {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "poolbootconfigs"}, "edge-1", errors.New("exceeded quota: "+strings.Repeat("long ", 300)))
				}
				return c.Create(ctx, o, opts...)
			},
		})
		w.ask(ctx, "edge-1", "edge-2")
		for range 3 {
			Expect(r.Reconcile(ctx, ctrl.Request{NamespacedName: key})).Error().NotTo(HaveOccurred())
		}
		Expect(w.hosts(ctx)).To(ConsistOf("edge-2"))
		Expect(w.enrollment(ctx).Status.Requests).To(ConsistOf(And(HaveField("Name", "edge-1"), HaveField("Refused", And(
			ContainSubstring("the API server refuses PoolbootConfig edge-1"), ContainSubstring("exceeded quota"), WithTransform(utf8.RuneCountInString, BeNumerically("<=", 1024)))))))
	})
})
