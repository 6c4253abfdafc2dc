package install_test

import (
	"context"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/rights"
)

var _ = Describe("The manager's right to patch hosts", func() {
	// asManager is a client with the manager's name and rights.
	var asManager client.Client
	// dryRun changes a host in a dry run.
	dryRun := func(ctx context.Context, by client.Client, host *bmov1alpha1.BareMetalHost, change func(*bmov1alpha1.BareMetalHost)) error {
		changed := host.DeepCopy()
		change(changed)
		return by.Patch(ctx, changed, client.MergeFrom(host), client.DryRunAll)
	}
	// newHost creates a host and waits until the policies are enforced.
	newHost := func(ctx SpecContext, annotations map[string]string) *bmov1alpha1.BareMetalHost {
		GinkgoHelper()
		host := &bmov1alpha1.BareMetalHost{
			ObjectMeta: metav1.ObjectMeta{Namespace: newNamespace(ctx), Name: "host-1", Annotations: annotations, Labels: map[string]string{"rack": "r7"}},
			Spec:       bmov1alpha1.BareMetalHostSpec{BMC: bmov1alpha1.BMCDetails{Address: "redfish://bmc.example.com/1", CredentialsName: "bmc"}},
		}
		Expect(k8sClient.Create(ctx, host)).To(Succeed())
		Eventually(func() error {
			return dryRun(ctx, asManager, host, func(h *bmov1alpha1.BareMetalHost) { h.Spec.Online = true })
		}).Should(MatchError(ContainSubstring("can only change userData in the spec of a BareMetalHost")))
		return host
	}

	BeforeEach(func(ctx SpecContext) {
		asManager = newClientAs(ctx, rights.Manager, nil)
	})

	It("is limited to its annotations and the user data", func(ctx SpecContext) {
		host := newHost(ctx, map[string]string{"example.com/a": "b"})
		Expect(dryRun(ctx, asManager, host, func(h *bmov1alpha1.BareMetalHost) { h.Annotations[poolv1.HostRetainedPoolAnnotation] = "edge/infra" })).To(Succeed())
		for what, change := range map[string]func(*bmov1alpha1.BareMetalHost){
			"a new annotation":     func(h *bmov1alpha1.BareMetalHost) { h.Annotations[bmov1alpha1.RebootAnnotationPrefix] = "" },
			"another annotation":   func(h *bmov1alpha1.BareMetalHost) { h.Annotations["example.com/a"] = "c" },
			"a removed annotation": func(h *bmov1alpha1.BareMetalHost) { delete(h.Annotations, "example.com/a") },
			"a pool":               func(h *bmov1alpha1.BareMetalHost) { h.Annotations[poolv1.HostPoolAnnotation] = "infra" },
			"a label":              func(h *bmov1alpha1.BareMetalHost) { h.Labels["rack"] = "r8" },
			"a finalizer":          func(h *bmov1alpha1.BareMetalHost) { h.Finalizers = []string{"example.com/f"} },
			"an image":             func(h *bmov1alpha1.BareMetalHost) { h.Spec.Image = &bmov1alpha1.Image{URL: "http://example.com/i"} },
			"a consumer":           func(h *bmov1alpha1.BareMetalHost) { h.Spec.ConsumerRef = &corev1.ObjectReference{Name: "m"} },
			"another BMC":          func(h *bmov1alpha1.BareMetalHost) { h.Spec.BMC.Address = "redfish://bmc.example.com/2" },
			"unasked user data":    func(h *bmov1alpha1.BareMetalHost) { h.Spec.UserData = newUserDataReference(h) },
		} {
			Expect(dryRun(ctx, asManager, host, change)).To(MatchError(ContainSubstring("Poolboot's manager can")), what)
			Expect(dryRun(ctx, k8sClient, host, change)).To(Succeed(), "other clients: "+what)
		}
	})

	It("is limited to requesting a soft reboot of a host that is provisioned, and to withdrawing its own request", func(ctx SpecContext) {
		refused := MatchError(ContainSubstring("request a reboot of a provisioned one, and withdraw its own request"))
		setReboot := func(value string) func(*bmov1alpha1.BareMetalHost) {
			return func(h *bmov1alpha1.BareMetalHost) { h.Annotations[bmov1alpha1.RebootAnnotationPrefix] = value }
		}
		request, withdraw := setReboot(bootstrapv1.FirmwareRebootRequest), func(h *bmov1alpha1.BareMetalHost) { delete(h.Annotations, bmov1alpha1.RebootAnnotationPrefix) }
		host := newHost(ctx, map[string]string{"example.com/a": "b"})
		Expect(dryRun(ctx, asManager, host, func(h *bmov1alpha1.BareMetalHost) { h.Annotations[bootstrapv1.FirmwareRebootAnnotation] = "1/2" })).To(Succeed())
		Expect(dryRun(ctx, asManager, host, request)).To(refused, "it is not provisioned")
		host.Status.Provisioning.State, host.Status.OperationalStatus = bmov1alpha1.StateProvisioned, bmov1alpha1.OperationalStatusOK
		Expect(k8sClient.Status().Update(ctx, host)).To(Succeed())
		Expect(dryRun(ctx, asManager, host, request)).To(Succeed())
		Expect(dryRun(ctx, asManager, host, setReboot(`{"mode":"hard"}`))).To(refused)
		Expect(dryRun(ctx, asManager, host, func(h *bmov1alpha1.BareMetalHost) {
			h.Annotations[bmov1alpha1.RebootAnnotationPrefix+"/poolboot"] = bootstrapv1.FirmwareRebootRequest
		})).To(refused, "it keeps the host off")
		patch := func(change func(*bmov1alpha1.BareMetalHost)) {
			GinkgoHelper()
			before := host.DeepCopy()
			change(host)
			Expect(k8sClient.Patch(ctx, host, client.MergeFrom(before))).To(Succeed())
		}
		patch(setReboot(""))
		Expect(dryRun(ctx, asManager, host, withdraw)).To(refused, "the request of someone else")
		Expect(dryRun(ctx, asManager, host, request)).To(refused)
		patch(request)
		Expect(dryRun(ctx, asManager, host, withdraw)).To(Succeed())
		Expect(dryRun(ctx, asManager, host, setReboot(""))).To(refused)
	})

	It("is limited to setting and removing the user data of hosts with a pool annotation, with the Secret of the host's name", func(ctx SpecContext) {
		host := newHost(ctx, map[string]string{poolv1.HostPoolAnnotation: "infra"})
		refused := MatchError(ContainSubstring("Poolboot's manager can only set the user data"))
		setUserData := func(data *corev1.SecretReference) func(*bmov1alpha1.BareMetalHost) {
			return func(h *bmov1alpha1.BareMetalHost) { h.Spec.UserData = data }
		}
		mine := &corev1.SecretReference{Namespace: host.Namespace, Name: "mine"}
		Expect(dryRun(ctx, asManager, host, setUserData(newUserDataReference(host)))).To(Succeed())
		Expect(dryRun(ctx, asManager, host, setUserData(mine))).To(refused)
		Expect(dryRun(ctx, asManager, host, setUserData(&corev1.SecretReference{Namespace: "kube-system", Name: host.Name}))).To(refused)
		patch := func(change func(*bmov1alpha1.BareMetalHost)) {
			GinkgoHelper()
			before := host.DeepCopy()
			change(host)
			Expect(k8sClient.Patch(ctx, host, client.MergeFrom(before))).To(Succeed())
		}
		patch(setUserData(mine))
		Expect(dryRun(ctx, asManager, host, setUserData(newUserDataReference(host)))).To(Succeed(), "the Secret can be that of a deleted Machine")
		Expect(dryRun(ctx, asManager, host, setUserData(&corev1.SecretReference{Namespace: host.Namespace, Name: "other"}))).To(refused)
		Expect(dryRun(ctx, asManager, host, setUserData(nil))).To(refused)
		patch(setUserData(nil))
		patch(func(h *bmov1alpha1.BareMetalHost) { h.Spec.ConsumerRef = &corev1.ObjectReference{Name: "m"} })
		Expect(dryRun(ctx, asManager, host, setUserData(newUserDataReference(host)))).To(refused, "a host with a consumer")
		patch(setUserData(newUserDataReference(host)))
		Expect(dryRun(ctx, asManager, host, setUserData(mine))).To(refused)
		Expect(dryRun(ctx, asManager, host, setUserData(nil))).To(Succeed())
		patch(setUserData(mine))
		Expect(dryRun(ctx, asManager, host, setUserData(nil))).To(refused)
		Expect(dryRun(ctx, asManager, host, setUserData(newUserDataReference(host)))).To(refused)
	})

	It("includes deleting PoolbootConfigs of BareMetalHosts without a Machine only", func(ctx SpecContext) {
		namespace := newHost(ctx, nil).Namespace
		config := func(name string, change func(*bootstrapv1.PoolbootConfigSpec)) *bootstrapv1.PoolbootConfig {
			// The finalizer prevents its deletion by the manager, which deletes PoolbootConfigs without their host.
			created := &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: []string{"example.com/kept"}}}
			created.Spec.Join.Type = bootstrapv1.JoinTypeKubelet
			change(&created.Spec)
			Expect(k8sClient.Create(ctx, created)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) error {
				return client.IgnoreNotFound(k8sClient.Patch(ctx, created, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
			})
			return created
		}
		setHost := func(bmh string) func(*bootstrapv1.PoolbootConfigSpec) {
			return func(spec *bootstrapv1.PoolbootConfigSpec) {
				spec.PoolRole, spec.Host = "infra", bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeBareMetalHost, NodeName: "host-1", BareMetalHostName: bmh}
				if bmh == "" {
					spec.Host.Type, spec.Host.Enrollment = bootstrapv1.HostTypeEnrollment, bootstrapv1.EnrolledHost{Name: "edge"}
				}
			}
		}
		refused := MatchError(ContainSubstring("can only delete PoolbootConfigs of BareMetalHosts without a Machine"))
		machineConfig := config("machine", func(*bootstrapv1.PoolbootConfigSpec) {})
		Eventually(func() error { return asManager.Delete(ctx, machineConfig, client.DryRunAll) }).Should(refused)
		Expect(asManager.Delete(ctx, config("enrolled", setHost("")))).To(refused)
		Expect(asManager.Delete(ctx, config("host-1", setHost("host-1")))).To(Succeed())
	})

	It("includes creating PoolbootConfigs of hosts without a Machine, and those that adopt the Node of the Machine that owns them, only", func(ctx SpecContext) {
		namespace := newHost(ctx, nil).Namespace
		create := func(by client.Client, owner string, change func(*bootstrapv1.PoolbootConfigSpec)) error {
			created := &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "edge-7", Labels: map[string]string{clusterv1.ClusterNameLabel: "edge"}}}
			created.Spec.PoolRole = "infra"
			if kind, group, found := strings.Cut(owner, "."); found {
				created.OwnerReferences = []metav1.OwnerReference{{APIVersion: group + "/v1beta2", Kind: kind, Name: "md-1", UID: "1"}}
			}
			change(&created.Spec)
			return by.Create(ctx, created, client.DryRunAll)
		}
		setJoin := func(spec *bootstrapv1.PoolbootConfigSpec) { spec.Join.Type = bootstrapv1.JoinTypeKubelet }
		setNode := func(spec *bootstrapv1.PoolbootConfigSpec) {
			spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeNode, NodeName: "edge-7", Adoption: bootstrapv1.AdoptionFollow}
		}
		setHost := func(spec *bootstrapv1.PoolbootConfigSpec) {
			setJoin(spec)
			spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeEnrollment, NodeName: "edge-7", Enrollment: bootstrapv1.EnrolledHost{Name: "edge"}}
		}
		const ofMachine = "Machine.cluster.x-k8s.io"
		refused := MatchError(ContainSubstring("can only create PoolbootConfigs of hosts without a Machine"))
		Eventually(func() error { return create(asManager, ofMachine, setJoin) }).Should(refused, "the boot of a Machine")
		for _, owner := range []string{"", "Cluster.cluster.x-k8s.io", "Machine.example.com"} {
			Expect(create(asManager, owner, setNode)).To(refused, "the adoption of a Node with the owner %q", owner)
			Expect(create(k8sClient, owner, setNode)).To(Succeed(), "other clients")
		}
		Expect(create(asManager, ofMachine, setNode)).To(Succeed())
		Expect(create(asManager, "", setHost)).To(Succeed())
	})
})

// newUserDataReference returns the user data that Poolboot sets on a host.
func newUserDataReference(h *bmov1alpha1.BareMetalHost) *corev1.SecretReference {
	return &corev1.SecretReference{Namespace: h.Namespace, Name: h.Name}
}
