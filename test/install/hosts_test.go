package install_test

import (
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/clusterapi"
)

var _ = Describe("The manager's right to patch hosts", func() {
	It("is for one annotation and nothing else", func(ctx SpecContext) {
		host := &bmov1alpha1.BareMetalHost{
			ObjectMeta: metav1.ObjectMeta{Namespace: newNamespace(ctx), Name: "host-1", Annotations: map[string]string{"example.com/a": "b"}, Labels: map[string]string{"rack": "r7"}},
			Spec:       bmov1alpha1.BareMetalHostSpec{BMC: bmov1alpha1.BMCDetails{Address: "redfish://bmc.example.com/1", CredentialsName: "bmc"}},
		}
		Expect(c.Create(ctx, host)).To(Succeed())
		config := rest.CopyConfig(plane.Config)
		config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:poolboot-system:poolboot-manager"}
		manager, err := client.New(config, client.Options{Scheme: clusterapi.Scheme()})
		Expect(err).NotTo(HaveOccurred())
		try := func(by client.Client, change func(*bmov1alpha1.BareMetalHost)) error {
			changed := host.DeepCopy()
			change(changed)
			return by.Patch(ctx, changed, client.MergeFrom(host), client.DryRunAll)
		}
		// Policies take effect a moment after they are installed.
		Eventually(func() error { return try(manager, func(h *bmov1alpha1.BareMetalHost) { h.Spec.Online = true }) }).
			Should(MatchError(ContainSubstring("may not change the spec of a BareMetalHost")))
		Expect(try(manager, func(h *bmov1alpha1.BareMetalHost) { h.Annotations[poolv1.HostRetainedPoolAnnotation] = "edge/infra" })).To(Succeed())
		for what, change := range map[string]func(*bmov1alpha1.BareMetalHost){
			"a new annotation":   func(h *bmov1alpha1.BareMetalHost) { h.Annotations[bmov1alpha1.RebootAnnotationPrefix] = "" },
			"another annotation": func(h *bmov1alpha1.BareMetalHost) { h.Annotations["example.com/a"] = "c" },
			"one less":           func(h *bmov1alpha1.BareMetalHost) { delete(h.Annotations, "example.com/a") },
			"a label":            func(h *bmov1alpha1.BareMetalHost) { h.Labels["rack"] = "r8" },
			"a finalizer":        func(h *bmov1alpha1.BareMetalHost) { h.Finalizers = []string{"example.com/f"} },
		} {
			Expect(try(manager, change)).To(MatchError(ContainSubstring("Poolboot's manager may")), what)
			Expect(try(c, change)).To(Succeed(), "others: "+what)
		}
	})
})
