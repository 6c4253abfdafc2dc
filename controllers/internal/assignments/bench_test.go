package assignments_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/assignments"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

// BenchmarkReference shows what is saved by the memory of references to rendered configs. Each boot and each update of
// a host needs one.
func BenchmarkReference(b *testing.B) {
	RegisterFailHandler(func(message string, _ ...int) { b.Fatal(message) })
	files := make([]string, 200)
	for i := range files {
		files[i] = fmt.Sprintf(`{"path":"/etc/file-%d","contents":{"source":"data:,%s"}}`, i, strings.Repeat("x", 500))
	}
	rendered := &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "rendered-infra-1"},
		Spec: poolv1.MachineConfigSpec{Config: &runtime.RawExtension{
			Raw: fmt.Appendf(nil, `{"ignition":{"version":"3.4.0"},"storage":{"files":[%s]}}`, strings.Join(files, ","))}}}
	b.Run("forgets", func(b *testing.B) {
		for b.Loop() {
			Expect(join.RenderedOf(rendered)).Error().NotTo(HaveOccurred())
		}
	})
	b.Run("remembers", func(b *testing.B) {
		references := assignments.NewRenderedConfigs(controllertest.NewClientBuilder(rendered).Build())
		for b.Loop() {
			Expect(references.Get(b.Context(), client.ObjectKeyFromObject(rendered))).Error().NotTo(HaveOccurred())
		}
	})
}
