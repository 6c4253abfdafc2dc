package boot

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/scope"
)

// BenchmarkBoot shows what is saved by what boots of one Cluster remember: whether it approves certificates itself,
// that the rights of join credentials are ensured, and its readiness rules. An operation is the boot of another host.
func BenchmarkBoot(b *testing.B) {
	RegisterFailHandler(func(message string, _ ...int) { b.Fatal(message) })
	for name, remembers := range map[string]bool{"remembers": true, "forgets": false} {
		b.Run(name, func(b *testing.B) {
			ctx, requests := b.Context(), 0
			first := newSetting().world()
			Expect(first.sendRequest(ctx)).To(BeZero())
			for b.Loop() {
				b.StopTimer()
				w := newSetting().world()
				w.clusters.workload = counted(w.clusters.workload.(client.WithWatch), &requests)
				if remembers {
					process := first.reconciler
					process.Client, process.APIReader, process.ClusterCache = w.reconciler.Client, w.reconciler.APIReader, w.clusters
					process.hosts, w.reconciler = scope.Hosts{Client: process.Client, Live: process.APIReader}, process
				}
				b.StartTimer()
				Expect(w.sendRequest(ctx)).To(BeZero())
			}
			b.ReportMetric(float64(requests)/float64(b.N), "requests-to-the-cluster/op")
		})
	}
}

// counted returns a client whose requests are counted.
func counted(c client.WithWatch, requests *int) client.Client {
	funcs := controllertest.InterceptWrites(func(_ context.Context, _ client.Object, write func() error) error {
		*requests++
		return write()
	})
	funcs.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		*requests++
		return c.Get(ctx, key, o, opts...)
	}
	funcs.List = func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		*requests++
		return c.List(ctx, list, opts...)
	}
	return interceptor.NewClient(c, funcs)
}
