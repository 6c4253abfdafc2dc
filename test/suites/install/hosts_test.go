package install_test

import (
	"context"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/rights"
)

var _ = Describe("The manager's right to patch hosts", func() {
	// asManager is the manager as far as the API server can tell; try is a change of a host that is not carried out.
	var asManager client.Client
	try := func(ctx context.Context, by client.Client, host *bmov1alpha1.BareMetalHost, change func(*bmov1alpha1.BareMetalHost)) error {
		changed := host.DeepCopy()
		change(changed)
		return by.Patch(ctx, changed, client.MergeFrom(host), client.DryRunAll)
	}
	// newHost is a host that policies hold for already: they take effect a moment after they are installed.
	newHost := func(ctx SpecContext, annotations map[string]string) *bmov1alpha1.BareMetalHost {
		GinkgoHelper()
		host := &bmov1alpha1.BareMetalHost{
			ObjectMeta: metav1.ObjectMeta{Namespace: newNamespace(ctx), Name: "host-1", Annotations: annotations, Labels: map[string]string{"rack": "r7"}},
			Spec:       bmov1alpha1.BareMetalHostSpec{BMC: bmov1alpha1.BMCDetails{Address: "redfish://bmc.example.com/1", CredentialsName: "bmc"}},
		}
		Expect(c.Create(ctx, host)).To(Succeed())
		Eventually(func() error {
			return try(ctx, asManager, host, func(h *bmov1alpha1.BareMetalHost) { h.Spec.Online = true })
		}).Should(MatchError(ContainSubstring("may not change the spec of a BareMetalHost")))
		return host
	}

	BeforeEach(func(ctx SpecContext) {
		asManager = as(ctx, rights.Manager, nil)
	})

	It("is for one annotation, and user data, and nothing else", func(ctx SpecContext) {
		host := newHost(ctx, map[string]string{"example.com/a": "b"})
		Expect(try(ctx, asManager, host, func(h *bmov1alpha1.BareMetalHost) { h.Annotations[poolv1.HostRetainedPoolAnnotation] = "edge/infra" })).To(Succeed())
		for what, change := range map[string]func(*bmov1alpha1.BareMetalHost){
			"a new annotation":   func(h *bmov1alpha1.BareMetalHost) { h.Annotations[bmov1alpha1.RebootAnnotationPrefix] = "" },
			"another annotation": func(h *bmov1alpha1.BareMetalHost) { h.Annotations["example.com/a"] = "c" },
			"one less":           func(h *bmov1alpha1.BareMetalHost) { delete(h.Annotations, "example.com/a") },
			"a pool":             func(h *bmov1alpha1.BareMetalHost) { h.Annotations[poolv1.HostPoolAnnotation] = "infra" },
			"a label":            func(h *bmov1alpha1.BareMetalHost) { h.Labels["rack"] = "r8" },
			"a finalizer":        func(h *bmov1alpha1.BareMetalHost) { h.Finalizers = []string{"example.com/f"} },
			"an image":           func(h *bmov1alpha1.BareMetalHost) { h.Spec.Image = &bmov1alpha1.Image{URL: "http://example.com/i"} },
			"a consumer":         func(h *bmov1alpha1.BareMetalHost) { h.Spec.ConsumerRef = &corev1.ObjectReference{Name: "m"} },
			"another BMC":        func(h *bmov1alpha1.BareMetalHost) { h.Spec.BMC.Address = "redfish://bmc.example.com/2" },
			"unasked user data":  func(h *bmov1alpha1.BareMetalHost) { h.Spec.UserData = ownUserData(h) },
		} {
			Expect(try(ctx, asManager, host, change)).To(MatchError(ContainSubstring("Poolboot's manager may")), what)
			Expect(try(ctx, c, host, change)).To(Succeed(), "others: "+what)
		}
	})

	It("is, of the user data, to set that of a host which asks for a pool to the Secret of its name, and to take that away", func(ctx SpecContext) {
		host := newHost(ctx, map[string]string{poolv1.HostPoolAnnotation: "infra"})
		refused := MatchError(ContainSubstring("Poolboot's manager may only set the user data"))
		to := func(data *corev1.SecretReference) func(*bmov1alpha1.BareMetalHost) {
			return func(h *bmov1alpha1.BareMetalHost) { h.Spec.UserData = data }
		}
		mine := &corev1.SecretReference{Namespace: host.Namespace, Name: "mine"}
		Expect(try(ctx, asManager, host, to(ownUserData(host)))).To(Succeed())
		Expect(try(ctx, asManager, host, to(mine))).To(refused)
		Expect(try(ctx, asManager, host, to(&corev1.SecretReference{Namespace: "kube-system", Name: host.Name}))).To(refused)
		write := func(change func(*bmov1alpha1.BareMetalHost)) {
			GinkgoHelper()
			before := host.DeepCopy()
			change(host)
			Expect(c.Patch(ctx, host, client.MergeFrom(before))).To(Succeed())
		}
		write(func(h *bmov1alpha1.BareMetalHost) { h.Spec.ConsumerRef = &corev1.ObjectReference{Name: "m"} })
		Expect(try(ctx, asManager, host, to(ownUserData(host)))).To(refused, "a host that is another one's")
		write(to(ownUserData(host)))
		Expect(try(ctx, asManager, host, to(mine))).To(refused)
		Expect(try(ctx, asManager, host, to(nil))).To(Succeed())
		write(to(mine))
		Expect(try(ctx, asManager, host, to(nil))).To(refused)
		Expect(try(ctx, asManager, host, to(ownUserData(host)))).To(refused)
	})

	It("comes with one to delete PoolbootConfigs, of hosts without a Machine only", func(ctx SpecContext) {
		namespace := newHost(ctx, nil).Namespace
		config := func(name string, change func(*bootstrapv1.PoolbootConfigSpec)) *bootstrapv1.PoolbootConfig {
			// The finalizer keeps it from the manager, which deletes what has lost its host.
			made := &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: []string{"example.com/kept"}}}
			made.Spec.Join.Type = bootstrapv1.JoinTypeKubelet
			change(&made.Spec)
			Expect(c.Create(ctx, made)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) error {
				return client.IgnoreNotFound(c.Patch(ctx, made, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
			})
			return made
		}
		ofHost := func(bmh string) func(*bootstrapv1.PoolbootConfigSpec) {
			return func(spec *bootstrapv1.PoolbootConfigSpec) {
				spec.PoolRole, spec.Host = "infra", bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeBareMetalHost, NodeName: "host-1", BareMetalHostName: bmh}
				if bmh == "" {
					spec.Host.Type, spec.Host.Enrollment = bootstrapv1.HostTypeEnrollment, bootstrapv1.EnrolledHost{Name: "edge", Address: "192.0.2.7"}
				}
			}
		}
		refused := MatchError(ContainSubstring("may delete no PoolbootConfig but those of BareMetalHosts without a Machine"))
		machines := config("machine", func(*bootstrapv1.PoolbootConfigSpec) {})
		Eventually(func() error { return asManager.Delete(ctx, machines, client.DryRunAll) }).Should(refused)
		Expect(asManager.Delete(ctx, config("enrolled", ofHost("")))).To(refused)
		Expect(asManager.Delete(ctx, config("host-1", ofHost("host-1")))).To(Succeed())
	})
})

// ownUserData is the user data that Poolboot gives a host.
func ownUserData(h *bmov1alpha1.BareMetalHost) *corev1.SecretReference {
	return &corev1.SecretReference{Namespace: h.Namespace, Name: h.Name}
}
