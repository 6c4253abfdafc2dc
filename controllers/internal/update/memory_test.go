package update

import (
	"context"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
)

// BenchmarkUpdateOfHost shows what is saved by the memory of a host's revision and of its stored assignment. An
// operation is an update, in which the host and its pool are reconciled after each thing that the agent reports.
func BenchmarkUpdateOfHost(b *testing.B) {
	RegisterFailHandler(func(message string, _ ...int) { b.Fatal(message) })
	for name, remembers := range map[string]bool{"remembers": true, "forgets": false} {
		b.Run(name, func(b *testing.B) {
			ctx, reads, documents, update := b.Context(), 0, 0, 0
			w := newWorld(1)
			w.adopt(ctx)
			w.reconciler.APIReader = interceptor.NewClient(w.management, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if _, isSecret := o.(*corev1.Secret); isSecret {
						reads++
					}
					return c.Get(ctx, key, o, opts...)
				},
			})
			build := w.reconciler.document
			w.reconciler.document = func(ctx context.Context, h *host, in poolContext) ([]byte, error) {
				documents++
				return build(ctx, h, in)
			}
			reconcile := func() {
				for range 2 {
					if !remembers {
						w.reconciler.revisions.Clear()
						w.reconciler.assignments.Clear()
					}
					Expect(w.reconcilePool(ctx)).Error().NotTo(HaveOccurred())
					Expect(w.reconcileHost(ctx, 0)).Error().NotTo(HaveOccurred())
				}
			}
			for b.Loop() {
				update++
				w.render(ctx, fmt.Sprintf("rendered-worker-%d", 1+update))
				reconcile()
				told := w.node(ctx, 0).Annotations[agentv1.DesiredAnnotation]
				for _, state := range []agentv1.State{agentv1.Draining, agentv1.Applying, agentv1.Rebooting, agentv1.Verifying, agentv1.Done} {
					w.reports(ctx, 0, state, told, "")
					reconcile()
				}
			}
			b.ReportMetric(float64(reads)/float64(b.N), "secret-reads/op")
			b.ReportMetric(float64(documents)/float64(b.N), "documents/op")
		})
	}
}
