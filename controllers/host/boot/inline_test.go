package boot

import (
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

var _ = Describe("A host that boots from its data Secret", func() {
	var s *setting
	BeforeEach(func() {
		s = newSetting()
		s.inline(time.Now().Add(join.Lifetime))
	})

	// aboutToEnd makes the credential in the data Secret expire soon, and returns its bootstrap token.
	aboutToEnd := func() *corev1.Secret {
		expires := time.Now().Add(time.Minute)
		s.inline(expires)
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-abcdef"},
			Type:       "bootstrap.kubernetes.io/token",
			Data:       map[string][]byte{"token-id": []byte("abcdef"), "expiration": []byte(expires.UTC().Format(time.RFC3339))},
		}
	}
	condition := func(ctx SpecContext, w *world) *metav1.Condition {
		return conditions.Get(w.config(ctx), bootstrapv1.BootPreparedCondition)
	}

	DescribeTable("has no Node yet, and no error is reported,",
		func(ctx SpecContext, while func()) {
			while()
			w := s.world()
			result, err := w.reconcile(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(result.RequeueAfter).To(BeNumerically("~", join.Lifetime/2, 10*time.Second), "the watch on hosts triggers the next try")
			Expect(w.nodes(ctx)).To(BeEmpty())
			Expect(condition(ctx, w)).To(And(
				HaveField("Status", metav1.ConditionUnknown), HaveField("Reason", bootstrapv1.WaitingForHostReason)))
			Expect(w.newEvents()).To(BeEmpty())
		},
		Entry("while no host is chosen", func() { s.metal3Machine.SetAnnotations(nil) }),
		Entry("while its host is available", func() { s.host.Status.Provisioning.State = bmov1alpha1.StateAvailable }),
		Entry("while its host is cleaned", func() { s.host.Status.Provisioning.State = bmov1alpha1.StatePreparing }),
	)

	DescribeTable("gets its Node in its pool, and no overlay is created,",
		func(ctx SpecContext, state bmov1alpha1.ProvisioningState) {
			s.host.Status.Provisioning.State = state
			s.infra.Status.Configuration.Name = "rendered-edge-infra-2"
			w := s.world()
			result, err := w.reconcile(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(result.RequeueAfter).To(BeNumerically("~", join.Lifetime/2, 10*time.Second), "before the credential expires")
			n, config := w.node(ctx), w.config(ctx)
			Expect(n.Labels).To(And(HaveKey(infraLabel), HaveKeyWithValue(poolv1.NodeMetal3UUIDLabel, "uid-of-the-host")))
			Expect(n.Annotations).To(HaveKeyWithValue(poolv1.NodeCurrentConfigAnnotation, "rendered-edge-infra-1"), "what its Secret holds")
			Expect(config.Status.NodeRef).To(Equal(bootstrapv1.NodeReference{Name: n.Name, UID: string(n.UID)}))
			Expect(config.Status.Boot.CredentialID).To(Equal("abcdef"))
			Expect(condition(ctx, w)).To(HaveField("Status", metav1.ConditionTrue))
			Expect(w.overlays(ctx)).To(BeEmpty())

			written := w.writes
			_, err = w.reconcile(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(w.writes).To(Equal(written), "a second look costs none")
		},
		Entry("when its image is being written", bmov1alpha1.StateProvisioning),
		Entry("when its image is written", bmov1alpha1.StateProvisioned),
	)

	It("has no Node while Metal3 can't install it, and the condition says why", func(ctx SpecContext) {
		s.host.Status.Provisioning.State, s.host.Status.ErrorType, s.host.Status.ErrorMessage = bmov1alpha1.StateInspecting, bmov1alpha1.InspectionError, "no boot device"
		w := s.world()
		_, err := w.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(condition(ctx, w)).To(And(HaveField("Reason", bootstrapv1.WaitingForHostReason), HaveField("Message", ContainSubstring("is inspecting and has a inspection error: no boot device"))))
		change(ctx, w.management, s.host, func(h *bmov1alpha1.BareMetalHost) {
			h.Status.ErrorType, h.Status.ErrorMessage, h.Status.Provisioning.State = "", "", bmov1alpha1.StateProvisioning
			h.Spec.NetworkData = &corev1.SecretReference{Name: "gone-networkdata"}
		})
		Expect(w.reconcile(ctx)).To(HaveField("RequeueAfter", secretsInterval), "no watch reports that Secret")
		Expect(condition(ctx, w)).To(HaveField("Message", ContainSubstring("is Secret gone-networkdata, which does not exist: create the Secret")))
		Expect(w.nodes(ctx)).To(BeEmpty())
		Expect(w.management.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gone-networkdata"}})).To(Succeed())
		_, err = w.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.nodes(ctx)).To(HaveLen(1))
	})

	It("gets its Node in the pool of its data Secret or none, whatever the labels of its Machine are now", func(ctx SpecContext) {
		s.config.Status.PoolRole, s.config.Status.Boot.ServedConfiguration.Name = "worker", "rendered-edge-worker-1"
		w := s.world()
		_, err := w.reconcile(ctx)
		Expect(err).To(HaveOccurred())
		expectNotPrepared(ctx, w, bootstrapv1.LabelConflictReason, `the pool "infra" selects them`, "delete Machine "+machineName, `pool "worker"`)
		Expect(w.nodes(ctx)).To(BeEmpty())
		change(ctx, w.management, s.machine, func(m *clusterv1.Machine) { delete(m.Labels, infraLabel) })
		_, err = w.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.node(ctx).Labels).To(HaveKeyWithValue(poolv1.NodePoolLabel, "worker"))
	})

	It("gets no Node before the pool of its data Secret is recorded", func(ctx SpecContext) {
		s.config.Status.PoolRole = ""
		w := s.world()
		_, err := w.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.nodes(ctx)).To(BeEmpty())
		Expect(w.newEvents()).To(BeEmpty())
	})

	It("can get another certificate after it was wiped, because the credential in its data Secret stays the same", func(ctx SpecContext) {
		w := s.world()
		granted := bootstrapv1.GrantedCertificate{CredentialID: "abcdef", PublicKeySHA256: "of-the-key"}
		_, err := w.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		change(ctx, w.management, w.config(ctx), func(c *bootstrapv1.PoolbootConfig) { c.Status.Certificate = granted })
		_, err = w.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.config(ctx).Status.Certificate).To(Equal(granted))
		change(ctx, w.management, s.host, func(h *bmov1alpha1.BareMetalHost) { h.Status.Provisioning.State = bmov1alpha1.StateDeprovisioning })
		_, err = w.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.config(ctx).Status.Certificate).To(BeZero())
	})

	It("can request its certificate whenever it boots", func(ctx SpecContext) {
		s.metal3Machine.SetAnnotations(nil)
		w := s.world()
		_, err := w.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		binding := &rbacv1.ClusterRoleBinding{}
		Expect(w.workload.Get(ctx, client.ObjectKey{Name: "poolboot:node-bootstrapper"}, binding)).To(Succeed())
		Expect(binding.Subjects).To(ConsistOf(HaveField("Name", join.Group)))
	})

	It("keeps a valid credential, however long it takes", func(ctx SpecContext) {
		token := aboutToEnd()
		s.host.Status.Provisioning.State = bmov1alpha1.StatePreparing
		w := s.world()
		Expect(w.workload.Create(ctx, token)).To(Succeed())
		_, err := w.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		expires, err := time.Parse(time.RFC3339, string(w.credentials(ctx)[0].Data["expiration"]))
		Expect(err).NotTo(HaveOccurred())
		Expect(expires).To(BeTemporally("~", time.Now().Add(join.Lifetime), 10*time.Second))
		Expect(w.config(ctx).Status.Boot.CredentialExpirationTime.Time).To(BeTemporally("==", expires))
	})

	Describe("whose credential expired before it was extended", func() {
		const value = "abcdef.0123456789abcdef"
		secret := func(token string) *corev1.Secret {
			overlay, err := join.Machine{
				Config: s.config, Registration: registration.Registration{Name: machineName},
				Cluster: join.Cluster{Server: "https://192.0.2.10:6443", CA: []byte("the cluster's CA")},
			}.Overlay(join.Credential{ID: token[:6], Secret: token[7:]})
			Expect(err).NotTo(HaveOccurred())
			raw, err := ignition.Marshal(overlay)
			Expect(err).NotTo(HaveOccurred())
			return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: machineName}, Data: map[string][]byte{"value": raw}}
		}
		BeforeEach(func() { s.inline(time.Now().Add(-time.Hour)) })

		It("gets it back, unchanged from its data Secret", func(ctx SpecContext) {
			w := s.world(secret(value))
			_, err := w.reconcile(ctx)
			Expect(err).NotTo(HaveOccurred())
			token := w.credentials(ctx)[0]
			Expect(token.Name).To(Equal("bootstrap-token-abcdef"))
			Expect(string(token.Data["token-secret"])).To(Equal("0123456789abcdef"))
			Expect(join.IsCredentialOf(&token, namespace+"/"+machineName)).To(BeTrue())
			Expect(w.config(ctx).Status.Boot.CredentialExpirationTime.Time).To(BeTemporally("~", time.Now().Add(join.Lifetime), 10*time.Second))
			Expect(condition(ctx, w)).To(HaveField("Status", metav1.ConditionTrue))
		})

		It("gets it back, whichever write fails", func(ctx SpecContext) {
			for failing := 1; failing <= 2; failing++ {
				w := s.world(secret(value))
				w.after = func(n int) error {
					if n == failing {
						return errStopped
					}
					return nil
				}
				_, err := w.reconcile(ctx)
				Expect(err).To(HaveOccurred())
				w.restart()
				_, err = w.reconcile(ctx)
				Expect(err).NotTo(HaveOccurred())
				Expect(w.credentials(ctx)).To(HaveLen(1))
				Expect(w.config(ctx).Status.Boot.CredentialExpirationTime.Time).To(BeTemporally(">", time.Now()))
			}
		})

		It("has no credential left if it joins at the same moment", func(ctx SpecContext) {
			w := s.world(secret(value))
			w.before = func(n int) error {
				if n == 2 { // the writes are the token and its record; another reconcile writes between them
					change(ctx, w.management, w.config(ctx), func(c *bootstrapv1.PoolbootConfig) { c.Status.Boot.CredentialID = "" })
				}
				return nil
			}
			_, _ = w.reconcile(ctx)
			Expect(w.credentials(ctx)).To(BeEmpty())
		})

		It("cannot join if a user deleted the credential earlier, and the condition names the remedy", func(ctx SpecContext) {
			aboutToEnd()
			w := s.world(secret(value))
			_, err := w.reconcile(ctx)
			Expect(err).To(HaveOccurred())
			expectNotPrepared(ctx, w, bootstrapv1.BootFailedReason, "abcdef", "deleted", "delete Machine "+machineName)
			Expect(w.config(ctx).Status.Boot.CredentialExpirationTime).To(BeNil(), "so that it stays deleted when its time is over")
			_, err = w.reconcile(ctx)
			Expect(err).To(HaveOccurred())
			Expect(w.credentials(ctx)).To(BeEmpty())
		})

		DescribeTable("cannot join if the credential cannot be restored, and the condition names the remedy,",
			func(ctx SpecContext, newSecret func() *corev1.Secret, why string) {
				w := s.world(newSecret())
				_, err := w.reconcile(ctx)
				Expect(err).To(HaveOccurred())
				expectNotPrepared(ctx, w, bootstrapv1.BootFailedReason, "abcdef", why, "delete Machine "+machineName)
				Expect(w.credentials(ctx)).To(BeEmpty())
			},
			Entry("because the data Secret contains another one", func() *corev1.Secret { return secret("fedcba.0123456789abcdef") }, "fedcba"),
			Entry("because the data Secret is not Ignition", func() *corev1.Secret {
				other := secret(value)
				other.Data["value"] = []byte("{")
				return other
			}, "can't be read"),
			Entry("because the data Secret contains none", func() *corev1.Secret {
				other := secret(value)
				other.Data["value"] = []byte(`{"ignition":{"version":"3.5.0"}}`)
				return other
			}, "there is no join credential"),
		)
	})

	It("is prepared when its workload cluster becomes reachable", func(ctx SpecContext) {
		w := s.world()
		w.clusters.down = true
		result, err := w.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(Equal(retryInterval))
		Expect(condition(ctx, w)).To(HaveField("Reason", bootstrapv1.WorkloadClusterUnreachableReason))
		w.clusters.down = false
		_, err = w.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(condition(ctx, w)).To(HaveField("Status", metav1.ConditionTrue))
	})

	It("needs nothing once its Node is in its pool", func(ctx SpecContext) {
		aboutToEnd()
		conditions.Set(s.config, metav1.Condition{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionTrue, Reason: bootstrapv1.NodeReadyInPoolReason})
		w := s.world()
		Expect(w.reconcile(ctx)).To(BeZero())
		Expect(w.writes).To(BeZero())
	})
})
