package boot

import (
	"fmt"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/scrape"
)

var _ = Describe("A host that requests its configuration", func() {
	var s *setting
	BeforeEach(func() { s = newSetting() })

	It("gets a Node in its pool, a join credential and an overlay", func(ctx SpecContext) {
		w := s.world()
		Expect(w.sendRequest(ctx)).To(BeZero())
		expectPrepared(ctx, w, machineName)
		Expect(w.newEvents()).To(BeEmpty(), "events report problems and their resolution")
	})

	It("is read live only after an earlier preparation, and keeps what that preparation created", func(ctx SpecContext) {
		w := s.world()
		before := w.config(ctx)
		before.Status.Requests.RequestedTime = microTime(time.Now())
		Expect(w.sendRequest(ctx)).To(BeZero())
		Expect(w.liveReads).To(BeZero())
		credential := w.config(ctx).Status.Boot.CredentialID
		w.restart()
		w.cached = before // from before the host had its credential
		Expect(w.reconcile(ctx)).Error().NotTo(HaveOccurred())
		Expect(w.liveReads).To(Equal(1))
		Expect(w.writes).To(Equal(3), "the rights, and the attempt to create the Node")
		Expect(w.credentials(ctx)).To(ConsistOf(HaveField("Name", "bootstrap-token-"+credential)))
	})

	It("takes four writes once the rights in its cluster are ensured", func(ctx SpecContext) {
		w := s.world()
		w.reconciler.rights.Store(clusterRights{cluster: s.cluster.UID}, true)
		Expect(w.sendRequest(ctx)).To(BeZero())
		Expect(w.writes).To(Equal(4))
		Expect(w.reconcile(ctx)).To(HaveField("RequeueAfter", BeNumerically("~", join.Lifetime/2, 10*time.Second)), "when its credential needs more time")
		Expect(w.writes).To(Equal(4), "a second look costs none")
	})

	It("is counted by its outcome", func(ctx SpecContext) {
		count := func(outcome string) float64 {
			return scrape.Sum(metrics.Registry, "poolboot_boots_total", map[string]string{"cluster": namespace + "/" + s.cluster.Name, "stage": "Preparing", "outcome": outcome})
		}
		created := func() float64 {
			return scrape.Sum(metrics.Registry, "poolboot_preregistrations_total", map[string]string{"pool": "infra", "outcome": "Created"})
		}
		prepared, failed, before := count("Done"), count(bootstrapv1.PoolNotRenderedReason), created()
		timed := scrape.Sum(metrics.Registry, "poolboot_boot_prepare_seconds", nil)
		configuration := s.infra.Status.Configuration
		s.infra.Status.Configuration = poolv1.PoolConfiguration{}
		w := s.world()
		for range 3 {
			_, err := w.sendRequest(ctx)
			Expect(err).To(HaveOccurred())
		}
		Expect(w.config(ctx).Status.HostRef).NotTo(BeZero(), "the host is recorded before its boot is prepared")
		change(ctx, w.management, s.infra, func(p *poolv1.MachineConfigPool) { p.Status.Configuration = configuration })
		Expect(w.reconcile(ctx)).To(BeZero())
		Expect(count(bootstrapv1.PoolNotRenderedReason)-failed).To(Equal(1.0), "one hold-up, however often the host retries")
		Expect(count("Done") - prepared).To(Equal(1.0))
		Expect(created() - before).To(Equal(1.0))
		Expect(scrape.Sum(metrics.Registry, "poolboot_boot_prepare_seconds", nil) - timed).To(Equal(1.0))
	})

	It("gets a Node with the name of the host if the config says so", func(ctx SpecContext) {
		s.config.Spec.NodeNameSource = bootstrapv1.NodeNameSourceHost
		w := s.world()
		Expect(w.sendRequest(ctx)).To(BeZero())
		expectPrepared(ctx, w, hostName)
	})

	It("joins with kubeadm if the config says so, with the rights that kubeadm needs", func(ctx SpecContext) {
		s.config.Spec.Join = bootstrapv1.Join{Type: bootstrapv1.JoinTypeKubeadm}
		w := s.world()
		Expect(w.sendRequest(ctx)).To(BeZero())
		Expect(w.overlays(ctx)).To(HaveLen(1))
		_, seenTo := w.reconciler.rights.Load(clusterRights{cluster: s.cluster.UID, kubeadm: true})
		Expect(seenTo).To(BeTrue())
	})

	It("is prepared even if the clock of the config server is ahead", func(ctx SpecContext) {
		s.config.Status.Requests.RequestedTime = microTime(time.Now().Add(time.Hour))
		w := s.world()
		Expect(w.reconcile(ctx)).To(BeZero())
		expectPrepared(ctx, w, machineName)
	})

	It("is not prepared if its token has expired, because it cannot fetch anything", func(ctx SpecContext) {
		s.config.Annotations[bootstrapv1.TokenHashAnnotation], s.config.Annotations[bootstrapv1.TokenStateAnnotation] = "of-the-token", string(bootstrapv1.TokenStateExpired)
		w := s.world()
		Expect(w.sendRequest(ctx)).To(BeZero())
		Expect(w.nodes(ctx)).To(BeEmpty())
	})

	Context("again", func() {
		It("keeps its Node and a credential that is still valid", func(ctx SpecContext) {
			w := s.world()
			Expect(w.sendRequest(ctx)).To(BeZero())
			first := w.config(ctx).Status
			kept := map[string]string{"pool": "infra", "outcome": "Kept"}
			before := scrape.Sum(metrics.Registry, "poolboot_preregistrations_total", kept)
			Expect(w.sendRequest(ctx)).To(BeZero())
			Expect(scrape.Sum(metrics.Registry, "poolboot_preregistrations_total", kept) - before).To(Equal(1.0))
			expectPrepared(ctx, w, machineName)
			second := w.config(ctx).Status
			Expect(second.NodeRef).To(Equal(first.NodeRef))
			Expect(second.Boot.CredentialID).To(Equal(first.Boot.CredentialID))
			Expect(second.Boot.PreparedTime.Time).To(BeTemporally(">", first.Boot.PreparedTime.Time))
		})

		It("gets a new credential if the old one expires soon, and the old one is deleted", func(ctx SpecContext) {
			w := s.world()
			Expect(w.sendRequest(ctx)).To(BeZero())
			first := w.config(ctx).Status
			token := w.credentials(ctx)[0]
			change(ctx, w.workload, &token, func(t *corev1.Secret) {
				t.Data["expiration"] = []byte(time.Now().Add(2 * time.Minute).UTC().Format(time.RFC3339))
			})
			Expect(w.sendRequest(ctx)).To(BeZero())
			expectPrepared(ctx, w, machineName)
			Expect(w.config(ctx).Status.NodeRef).To(Equal(first.NodeRef))
			Expect(w.config(ctx).Status.Boot.CredentialID).NotTo(Equal(first.Boot.CredentialID))
		})

		It("gets a new credential if the old one was used to obtain a certificate, and the old one is deleted", func(ctx SpecContext) {
			w := s.world()
			Expect(w.sendRequest(ctx)).To(BeZero())
			first := w.config(ctx).Status.Boot
			change(ctx, w.management, w.config(ctx), func(c *bootstrapv1.PoolbootConfig) {
				c.Status.Certificate = bootstrapv1.GrantedCertificate{CredentialID: first.CredentialID, PublicKeySHA256: "of-the-key"}
				conditions.Set(c, metav1.Condition{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionFalse, Reason: bootstrapv1.NodeMissingReason})
			})
			Expect(w.reconcile(ctx)).To(BeZero())
			Expect(w.config(ctx).Status.Boot.CredentialID).To(Equal(first.CredentialID), "it sent no other request")
			change(ctx, w.management, w.config(ctx), func(c *bootstrapv1.PoolbootConfig) { conditions.Delete(c, bootstrapv1.NodeInPoolCondition) })
			Expect(w.sendRequest(ctx)).To(BeZero())
			expectPrepared(ctx, w, machineName)
			second := w.config(ctx).Status.Boot.CredentialID
			Expect(second).NotTo(Equal(first.CredentialID))
			Expect(w.overlays(ctx)[0].Annotations).To(HaveKeyWithValue(bootstrapv1.CredentialIDAnnotation, second))
			Expect(w.sendRequest(ctx)).To(BeZero())
			Expect(w.config(ctx).Status.Boot.CredentialID).To(Equal(second), "which is not used")
		})

		It("boots with what its pool hands out now, and the Node names it", func(ctx SpecContext) {
			w := s.world()
			Expect(w.sendRequest(ctx)).To(BeZero())
			change(ctx, w.management, s.infra, func(p *poolv1.MachineConfigPool) { p.Status.Configuration.Name = "rendered-edge-infra-2" })
			Expect(w.sendRequest(ctx)).To(BeZero())
			Expect(w.config(ctx).Status.Boot.ServedConfiguration.Name).To(Equal("rendered-edge-infra-2"))
			Expect(w.node(ctx).Annotations).To(HaveKeyWithValue(poolv1.NodeCurrentConfigAnnotation, "rendered-edge-infra-2"))
			Expect(w.overlays(ctx)[0].Annotations).To(HaveKeyWithValue(bootstrapv1.OverlayConfigurationAnnotation, "rendered-edge-infra-2"))
		})

		It("stays in the recorded pool if its Machine is relabeled after its Node was pre-registered", func(ctx SpecContext) {
			w := s.world()
			Expect(w.sendRequest(ctx)).To(BeZero())
			s.config.Spec.PoolRole = poolv1.RoleWorker
			change(ctx, w.management, w.config(ctx), func(c *bootstrapv1.PoolbootConfig) { c.Spec.PoolRole = poolv1.RoleWorker })
			Expect(w.sendRequest(ctx)).To(BeZero())
			expectPrepared(ctx, w, machineName)
		})

		It("gets a new Node if the first was deleted, and the new UID is recorded", func(ctx SpecContext) {
			w := s.world()
			Expect(w.sendRequest(ctx)).To(BeZero())
			first := w.node(ctx)
			Expect(w.workload.Delete(ctx, first)).To(Succeed())
			Expect(w.sendRequest(ctx)).To(BeZero())
			expectPrepared(ctx, w, machineName)
			Expect(w.node(ctx).UID).NotTo(Equal(first.UID))
		})
	})

	It("boots into the pool that the labels of the Machine name at its request, not when the data Secret was created", func(ctx SpecContext) {
		s.config.Status.PoolRole = poolv1.RoleWorker
		w := s.world()
		Expect(w.sendRequest(ctx)).To(BeZero())
		expectPrepared(ctx, w, machineName)
		Expect(w.newEvents()).To(ContainElement(ContainSubstring("Normal " + bootstrapv1.EventPoolChanged)))
	})

	It("is reported as awaited once it is chosen, with one write and no live read", func(ctx SpecContext) {
		w := s.world()
		w.reconciler.APIReader = nil
		bmh := s.host.DeepCopy()
		change(ctx, w.management, bmh, func(h *bmov1alpha1.BareMetalHost) { h.Spec.ConsumerRef = nil })
		Expect(w.reconcile(ctx)).To(BeZero())
		Expect(w.writes).To(BeZero(), "no host is chosen")
		change(ctx, w.management, bmh, func(h *bmov1alpha1.BareMetalHost) { h.Spec.ConsumerRef = s.host.Spec.ConsumerRef })
		Expect(w.reconcile(ctx)).To(BeZero())
		Expect(w.reconcile(ctx)).To(BeZero())
		Expect(w.writes).To(Equal(1))
		condition := conditions.Get(w.config(ctx), bootstrapv1.BootPreparedCondition)
		Expect(condition.Status).To(Equal(metav1.ConditionUnknown))
		Expect(condition.Reason).To(Equal(bootstrapv1.WaitingForRequestReason))
		Expect(condition.Message).To(ContainSubstring(hostName))
		Expect(w.config(ctx).Status.HostRef).To(HaveField("Name", hostName))
		chosen := w.config(ctx).Status.Boot.HostChosenTime
		Expect(chosen.Time).To(BeTemporally("~", time.Now(), time.Minute))
		Expect(w.newEvents()).To(BeEmpty())

		w.reconciler.APIReader = w.reconciler.Client
		Expect(w.sendRequest(ctx)).To(BeZero())
		Expect(w.config(ctx).Status.Boot.HostChosenTime).To(Equal(chosen), "it is the same host")
	})

	It("keeps what others write to its config", func(ctx SpecContext) {
		w := s.world()
		registration, intervene := microTime(time.Now()), false
		w.before = func(n int) error {
			if intervene = !intervene; !intervene {
				return nil
			}
			change(ctx, w.management, w.config(ctx), func(c *bootstrapv1.PoolbootConfig) {
				c.Status.Requests.RegistrationRequestedTime = registration
				conditions.Set(c, metav1.Condition{Type: fmt.Sprintf("Write%d", n), Status: metav1.ConditionTrue, Reason: "ByAnother"})
			})
			return nil
		}
		Expect(w.sendRequest(ctx)).To(BeZero())
		expectPrepared(ctx, w, machineName)
		Expect(w.config(ctx).Status.Requests.RegistrationRequestedTime.Equal(registration)).To(BeTrue())
		for n := 1; n <= w.writes; n += 2 {
			Expect(conditions.IsTrue(w.config(ctx), fmt.Sprintf("Write%d", n))).To(BeTrue())
		}
	})

	It("leaves nothing behind, whenever its config is deleted", func(ctx SpecContext) {
		for moment := 1; moment <= writesOfFirstBoot; moment++ {
			w := newWorldWithAgent()
			w.before = func(n int) error {
				if n == moment {
					config := w.config(ctx)
					Expect(w.management.Delete(ctx, config)).To(Succeed())
					change(ctx, w.management, w.config(ctx), func(c *bootstrapv1.PoolbootConfig) { c.Finalizers = nil })
				}
				return nil
			}
			Expect(w.sendRequest(ctx)).To(BeZero())
			Expect(w.management.Get(ctx, client.ObjectKey{Namespace: namespace, Name: machineName}, &bootstrapv1.PoolbootConfig{})).NotTo(Succeed())
			Expect(w.nodes(ctx)).To(BeEmpty(), "moment %d", moment)
			Expect(w.credentials(ctx)).To(BeEmpty(), "moment %d", moment)
			Expect(w.overlays(ctx)).To(BeEmpty(), "moment %d", moment)
			Expect(w.assignments(ctx)).To(BeEmpty(), "moment %d", moment)
		}
	})
})
