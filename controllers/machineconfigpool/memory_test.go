package machineconfigpool

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
)

// BenchmarkLook shows what is saved by what is remembered of a pool: what it renders, that the rendered config has the
// content of its name, and what updates are predicted to do. An operation is a look at a pool after a host has changed.
func BenchmarkLook(b *testing.B) {
	RegisterFailHandler(func(message string, _ ...int) { b.Fatal(message) })
	for name, remembers := range map[string]bool{"remembers": true, "forgets": false} {
		b.Run(name, func(b *testing.B) {
			infra := config("infra", "infra", "1")
			files := make([]string, 200)
			for i := range files {
				files[i] = fmt.Sprintf(`{"path":"/etc/file-%d","contents":{"source":"data:,%s"}}`, i, strings.Repeat("x", 500))
			}
			infra.Spec.Config = &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"ignition":{"version":"3.4.0"},"storage":{"files":[%s]}}`, strings.Join(files, ","))}
			s := newFixture(cluster(), newPool("worker", "worker", 0), newPool("infra", "infra", 0), infra)
			s.reconcile("infra")
			for b.Loop() {
				if !remembers {
					s.reconciler.caches.Clear()
				}
				s.reconcile("infra")
			}
		})
	}
}
