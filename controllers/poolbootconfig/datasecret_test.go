package poolbootconfig

import (
	"context"
	"encoding/base64"
	"maps"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hostaccess"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/ownwrites"
)

func reasonOf(config *bootstrapv1.PoolbootConfig, condition string) string {
	if c := conditions.Get(config, condition); c != nil {
		return c.Reason
	}
	return ""
}

func pointerIn(secret *corev1.Secret) ignition.Pointer {
	GinkgoHelper()
	pointer, err := ignition.ParsePointer(secret.Data[bootstrapv1.DataSecretValueKey])
	Expect(err).NotTo(HaveOccurred())
	return pointer
}

var _ = Describe("The data Secret", func() {
	var ctx context.Context
	BeforeEach(func(c SpecContext) { ctx = c })

	usual := func() *site {
		return newSite(newCluster(), newMachine(role("infra")), newConfig(), newPool("worker"), newPool("infra"))
	}

	It("is not written again until the cache contains the last write", func() {
		s := usual()
		before := &bootstrapv1.PoolbootConfig{}
		Expect(s.Get(ctx, key, before)).To(Succeed())
		s.settle(ctx)
		s.cached = before
		writes := s.Writes
		Expect(s.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: key})).To(Equal(ctrl.Result{RequeueAfter: ownwrites.MaxLag}))
		Expect(s.Writes).To(Equal(writes))
	})

	It("fulfills the contract and points the host to the config server", func() {
		s := usual()
		config := s.settle(ctx)
		secret := s.secret(ctx)

		Expect(string(secret.Type)).To(Equal("cluster.x-k8s.io/secret"))
		Expect(secret.Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, clusterName))
		Expect(metav1.IsControlledBy(secret, config)).To(BeTrue())
		Expect(secret.Data).To(HaveKeyWithValue(bootstrapv1.DataSecretFormatKey, []byte("ignition")))

		pointer := pointerIn(secret)
		Expect(pointer.URL).To(Equal(pointerURL))
		bits, err := base64.RawURLEncoding.DecodeString(pointer.Token)
		Expect(err).NotTo(HaveOccurred())
		Expect(bits).To(HaveLen(32))

		Expect(config.Annotations).To(HaveKeyWithValue(bootstrapv1.PointerIDAnnotation, "machine-uid"))
		Expect(config.Annotations).To(haveToken(config, pointer.Token))
		Expect(config.Status.DataSecretName).To(Equal(config.Name))
		Expect(config.Status.Initialization.DataSecretCreated).To(HaveValue(BeTrue()))
		Expect(config.Status.PoolRole).To(Equal("infra"))
		Expect(config.Status.ObservedGeneration).To(Equal(config.Generation))
		Expect(conditions.IsTrue(config, clusterv1.ReadyCondition)).To(BeTrue())
		Expect(conditions.IsFalse(config, clusterv1.PausedCondition)).To(BeTrue())
		Expect(config.Finalizers).To(ContainElement(bootstrapv1.Finalizer))
		Expect(s.newEvents()).To(BeEmpty(), "events report problems and their resolution")
	})

	It("takes three requests: the Secret, its annotations on the config, the status", func() {
		s := usual()
		s.settle(ctx)
		Expect(s.Writes).To(Equal(3))
		Expect(s.reads).To(BeZero(), "what the cache can't tell, the API server was not asked")
	})

	It("is read first if it can be an obstacle, so its creation is not retried forever", func() {
		s := newSite(newCluster(), newMachine(nil), newConfig(), newPool("worker"), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: machineName}})
		s.settle(ctx)
		writes := s.Writes
		s.settle(ctx)
		Expect(s.Writes).To(Equal(writes))
	})

	It("is not recorded before the config has a finalizer, whichever write fails", func() {
		for failing := range 5 {
			s := usual()
			s.CrashAt, s.Late = failing, true
			_, _ = s.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: key})
			config := &bootstrapv1.PoolbootConfig{}
			Expect(s.Get(ctx, key, config)).To(Succeed())
			if config.Status.DataSecretName != "" {
				Expect(config.Finalizers).To(ContainElement(bootstrapv1.Finalizer), "write %d", failing)
			}
		}
	})

	It("causes no write while a MachineSet is about to create the Machine", func() {
		config := newConfig(func(c *bootstrapv1.PoolbootConfig) { c.OwnerReferences[0].Kind = "MachineSet" })
		s := newSite(newCluster(), config, newPool("worker"))
		s.settle(ctx)
		Expect(s.Writes).To(BeZero())
	})

	It("contains one token, whichever write fails, before or after it takes effect", func() {
		for _, late := range []bool{false, true} {
			for failing := 1; ; failing++ {
				s := usual()
				s.CrashAt, s.Late = failing, late
				config := s.settle(ctx)
				token := pointerIn(s.secret(ctx)).Token
				Expect(config.Annotations).To(haveToken(config, token), "write %d", failing)
				Expect(conditions.IsTrue(config, clusterv1.ReadyCondition)).To(BeTrue(), "write %d", failing)
				Expect(config.Status.DataSecretName).To(Equal(config.Name))
				if s.Writes < failing {
					Expect(failing).To(BeNumerically(">", 3), "so many writes at least")
					break
				}
			}
		}
	})

	// moved returns the site to which clusterctl move has brought the config of another site, with its Secret. Both
	// have other UIDs, and the status is lost.
	moved := func(s *site, change ...func(*bootstrapv1.PoolbootConfig, *corev1.Secret)) *site {
		GinkgoHelper()
		config := &bootstrapv1.PoolbootConfig{}
		Expect(s.Get(ctx, key, config)).To(Succeed())
		machine := newMachine(role("infra"))
		machine.UID = "new-machine-uid"
		machine.Spec.Bootstrap.DataSecretName = ptr.To(machineName)
		fresh := newConfig(func(c *bootstrapv1.PoolbootConfig) {
			c.Annotations = maps.Clone(config.Annotations)
			c.UID = "new-config-uid"
		})
		secret := s.secret(ctx)
		secret.ResourceVersion = ""
		secret.OwnerReferences[0].UID = fresh.UID
		for _, c := range change {
			c(fresh, secret)
		}
		cluster := newCluster()
		cluster.Status = clusterv1.ClusterStatus{} // is also lost, and is restored later
		return newSite(cluster, machine, fresh, secret, newPool("worker"), newPool("infra"))
	}

	It("keeps its token when the status is lost and the objects have other UIDs, as after clusterctl move, whichever write fails", func() {
		for failing := 1; ; failing++ {
			s := usual()
			token := pointerIn(s.secretAfter(ctx)).Token
			m := moved(s)
			m.CrashAt = failing
			config := m.settle(ctx)
			Expect(pointerIn(m.secret(ctx)).Token).To(Equal(token))
			Expect(config.Annotations).To(HaveKeyWithValue(bootstrapv1.PointerIDAnnotation, "machine-uid"))
			Expect(config.Annotations).To(haveToken(config, token), "bound to the config as it is now")
			Expect(conditions.IsTrue(config, clusterv1.ReadyCondition)).To(BeTrue())
			if m.Writes < failing {
				Expect(failing).To(BeNumerically(">", 2))
				break
			}
		}
	})

	It("keeps its token when it is moved with its status", func() {
		s := usual()
		token := pointerIn(s.secretAfter(ctx)).Token
		status := s.settle(ctx).Status
		m := moved(s, func(c *bootstrapv1.PoolbootConfig, _ *corev1.Secret) { c.Status = status })
		config := m.settle(ctx)
		Expect(config.Annotations).To(haveToken(config, token))
	})

	It("stays expired when it is moved", func() {
		s := usual()
		token := pointerIn(s.secretAfter(ctx)).Token
		m := moved(s, func(c *bootstrapv1.PoolbootConfig, _ *corev1.Secret) {
			record.ExpireToken(c)
		})
		config := m.settle(ctx)
		Expect(config.Annotations).To(haveToken(config, token))
		Expect(record.IsTokenExpired(config)).To(BeTrue())
	})

	It("is rotated if it is moved during a rotation", func() {
		for _, before := range []bool{true, false} {
			s := usual()
			old := pointerIn(s.secretAfter(ctx)).Token
			m := moved(s, func(c *bootstrapv1.PoolbootConfig, secret *corev1.Secret) {
				c.Annotations[bootstrapv1.RotateTokenAnnotation] = ""
				if before {
					return
				}
				value, err := ignition.Pointer{URL: pointerURL, Token: hostaccess.NewToken()}.Marshal()
				Expect(err).NotTo(HaveOccurred())
				secret.Data[bootstrapv1.DataSecretValueKey] = value
			})
			config := m.settle(ctx)
			token := pointerIn(m.secret(ctx)).Token
			Expect(token).NotTo(Equal(old))
			Expect(config.Annotations).To(haveToken(config, token))
			Expect(config.Annotations).NotTo(HaveKey(bootstrapv1.RotateTokenAnnotation))
		}
	})

	DescribeTable("is not bound again if it was copied:", func(reason, why string, change func(*bootstrapv1.PoolbootConfig, *corev1.Secret)) {
		s := usual()
		s.settle(ctx)
		m := moved(s, change)
		before := newConfig()
		Expect(m.Get(ctx, key, before)).To(Succeed())
		config := m.settle(ctx)
		Expect(config.Annotations).To(Equal(before.Annotations))
		Expect(conditions.Get(config, bootstrapv1.DataSecretAvailableCondition)).To(And(HaveField("Status", metav1.ConditionFalse),
			HaveField("Reason", reason), HaveField("Message", ContainSubstring(why))))
	},
		Entry("annotations without the token", bootstrapv1.DataSecretFailedReason, "not the recorded one", func(c *bootstrapv1.PoolbootConfig, secret *corev1.Secret) {
			value, err := ignition.Pointer{URL: pointerURL, Token: hostaccess.NewToken()}.Marshal()
			Expect(err).NotTo(HaveOccurred())
			secret.Data[bootstrapv1.DataSecretValueKey] = value
		}),
		Entry("annotations with another UID", bootstrapv1.DataSecretFailedReason, "not the recorded one", func(c *bootstrapv1.PoolbootConfig, _ *corev1.Secret) {
			c.Annotations[bootstrapv1.TokenUIDAnnotation] = "another"
		}),
		Entry("another config's annotations and Secret", bootstrapv1.DataSecretFailedReason, "that of PoolbootConfig elsewhere/infra-x7k", func(c *bootstrapv1.PoolbootConfig, secret *corev1.Secret) {
			token := pointerIn(secret).Token
			of := hostaccess.Address{Role: "infra", NamespacedName: client.ObjectKey{Namespace: "elsewhere", Name: machineName}, PointerID: "machine-uid"}
			maps.Copy(c.Annotations, hostaccess.Config(of.NamespacedName, "its-uid").Annotations(token))
			value, err := ignition.Pointer{URL: of.URL(serverURL), Token: token}.Marshal()
			Expect(err).NotTo(HaveOccurred())
			secret.Data[bootstrapv1.DataSecretValueKey] = value
		}),
		Entry("another config's annotations and token", bootstrapv1.DataSecretFailedReason, "not the recorded one", func(c *bootstrapv1.PoolbootConfig, secret *corev1.Secret) {
			of := client.ObjectKey{Namespace: "elsewhere", Name: machineName}
			maps.Copy(c.Annotations, hostaccess.Config(of, "its-uid").Annotations(pointerIn(secret).Token))
		}),
		Entry("a Secret that belongs to another config", bootstrapv1.DataSecretNotOwnedReason, "not controlled", func(_ *bootstrapv1.PoolbootConfig, secret *corev1.Secret) {
			secret.OwnerReferences[0].Name, secret.OwnerReferences[0].UID = "another", "another-uid"
		}),
	)

	It("keeps a revoked token revoked", func() {
		s := usual()
		config := s.settle(ctx)
		record.RevokeToken(config)
		Expect(s.Update(ctx, config)).To(Succeed())
		config.Status = bootstrapv1.PoolbootConfigStatus{}
		Expect(s.Status().Update(ctx, config)).To(Succeed())
		Expect(s.settle(ctx).Annotations).To(And(HaveKeyWithValue(bootstrapv1.TokenStateAnnotation, string(bootstrapv1.TokenStateRevoked)),
			Not(HaveKey(bootstrapv1.TokenHashAnnotation))))
	})

	It("is never created again for a Machine that names a lost one", func() {
		machine := newMachine(nil)
		machine.Spec.Bootstrap.DataSecretName = ptr.To(machineName)
		s := newSite(newCluster(), machine, newConfig(), newPool("worker"))
		config := s.settle(ctx)
		Expect(reasonOf(config, bootstrapv1.DataSecretAvailableCondition)).To(Equal(bootstrapv1.DataSecretFailedReason))
		Expect(s.Get(ctx, key, &corev1.Secret{})).NotTo(Succeed())
	})

	It("is not created for a Machine that a user gave another Secret, which is reported", func() {
		machine := newMachine(role("infra"))
		machine.Spec.Bootstrap.DataSecretName = ptr.To("by-hand")
		s := newSite(newCluster(), machine, newConfig(), newPool("worker"), newPool("infra"))
		config := s.settle(ctx)
		Expect(conditions.Get(config, bootstrapv1.DataSecretAvailableCondition)).To(And(HaveField("Reason", bootstrapv1.DataSecretPresetReason),
			HaveField("Message", And(ContainSubstring("spec.bootstrap.dataSecretName of Machine "+machineName), ContainSubstring("Secret by-hand"), ContainSubstring("remove the field")))))
		Expect(config.Status.PoolRole).To(BeEmpty(), "it is no pool's")
		Expect(s.Get(ctx, key, &corev1.Secret{})).NotTo(Succeed())
	})

	Describe("that a user deleted before its host has joined", func() {
		lose := func(s *site) *bootstrapv1.PoolbootConfig {
			GinkgoHelper()
			Expect(s.Delete(ctx, s.secretAfter(ctx))).To(Succeed())
			s.newEvents()
			return s.settle(ctx)
		}
		available := func(config *bootstrapv1.PoolbootConfig) *metav1.Condition {
			return conditions.Get(config, bootstrapv1.DataSecretAvailableCondition)
		}
		expectLost := func(s *site, config *bootstrapv1.PoolbootConfig, remedy string) {
			GinkgoHelper()
			Expect(available(config)).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", bootstrapv1.DataSecretFailedReason),
				HaveField("Message", And(ContainSubstring("Secret "+machineName), ContainSubstring(remedy)))))
			Expect(reasonOf(config, clusterv1.ReadyCondition)).To(Equal(bootstrapv1.DataSecretFailedReason))
			Expect(config.Status.DataSecretName).To(Equal(machineName), "the Machine has it for good")
			Expect(s.newEvents()).To(ConsistOf(HavePrefix("Warning " + bootstrapv1.DataSecretFailedReason)))
			Expect(s.Get(ctx, key, &corev1.Secret{})).NotTo(Succeed(), "another one would have another token than a host may hold")
			s.settle(ctx)
			Expect(s.newEvents()).To(BeEmpty(), "it is reported once")
		}
		It("is reported and not created again, until the user restores it", func() {
			s := usual()
			secret := s.secretAfter(ctx)
			expectLost(s, lose(s), "delete Machine "+machineName)
			secret.ResourceVersion = ""
			Expect(s.Create(ctx, secret)).To(Succeed())
			Expect(s.reconciler.configOfDataSecret(ctx, secret)).To(HaveLen(1), "its watch brings the config")
			Expect(conditions.IsTrue(s.settle(ctx), clusterv1.ReadyCondition)).To(BeTrue())
		})

		It("is reported for a host without a Machine, even if the status was lost too", func() {
			s := newSite(newCluster(), newConfig(withoutMachine), newPool("worker"), newPool("infra"))
			expectLost(s, lose(s), "delete PoolbootConfig "+machineName)
			config := newConfig()
			Expect(s.Get(ctx, key, config)).To(Succeed())
			config.Status = bootstrapv1.PoolbootConfigStatus{}
			Expect(s.Status().Update(ctx, config)).To(Succeed())
			Expect(available(s.settle(ctx)).Status).To(Equal(metav1.ConditionFalse))
			Expect(s.Get(ctx, key, &corev1.Secret{})).NotTo(Succeed())
		})

		It("is not accepted back with another token", func() {
			s := usual()
			secret := s.secretAfter(ctx)
			lose(s)
			value, err := ignition.Pointer{URL: pointerURL, Token: hostaccess.NewToken()}.Marshal()
			Expect(err).NotTo(HaveOccurred())
			secret.ResourceVersion, secret.Data[bootstrapv1.DataSecretValueKey] = "", value
			Expect(s.Create(ctx, secret)).To(Succeed())
			Expect(available(s.settle(ctx))).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Message", ContainSubstring("not the recorded one"))))
		})

		It("is read from the API server if it is only missing in the cache", func() {
			s := usual()
			s.settle(ctx)
			s.reconciler.Secrets = newSite().Client
			Expect(conditions.IsTrue(s.settle(ctx), clusterv1.ReadyCondition)).To(BeTrue())
			Expect(s.reads).To(Equal(1))
		})

		It("is not needed after the host has joined", func() {
			s := usual()
			config := s.settle(ctx)
			record.RevokeToken(config)
			Expect(s.Update(ctx, config)).To(Succeed())
			Expect(s.reconciler.configOfDataSecret(ctx, s.secret(ctx))).To(BeEmpty())
			Expect(conditions.IsTrue(lose(s), clusterv1.ReadyCondition)).To(BeTrue())
			config = s.settle(ctx)
			config.Status = bootstrapv1.PoolbootConfigStatus{} // as after a move without the Secret
			Expect(s.Status().Update(ctx, config)).To(Succeed())
			Expect(conditions.IsTrue(s.settle(ctx), clusterv1.ReadyCondition)).To(BeTrue())
		})
	})

	It("is not taken from another owner, and the condition names the Secret", func() {
		foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: machineName}}
		s := newSite(newCluster(), newMachine(nil), newConfig(), newPool("worker"), foreign)
		config := s.settle(ctx)
		Expect(reasonOf(config, bootstrapv1.DataSecretAvailableCondition)).To(Equal(bootstrapv1.DataSecretNotOwnedReason))
		Expect(conditions.Get(config, bootstrapv1.DataSecretAvailableCondition).Message).To(ContainSubstring(machineName))
		Expect(reasonOf(config, clusterv1.ReadyCondition)).To(Equal(bootstrapv1.DataSecretNotOwnedReason))
		Expect(config.Status.DataSecretName).To(BeEmpty())
		Expect(s.newEvents()).To(ContainElement(ContainSubstring(bootstrapv1.DataSecretNotOwnedReason)))
	})

	It("waits until the garbage collector deletes that of an earlier config with its name, without asking a user to act", func() {
		earlier := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: machineName, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: bootstrapv1.GroupVersion.String(), Kind: "PoolbootConfig", Name: machineName, UID: "earlier", Controller: ptr.To(true)}}}}
		s := newSite(newCluster(), newMachine(nil), newConfig(), newPool("worker"), earlier)
		config := s.settle(ctx)
		waits := conditions.Get(config, bootstrapv1.DataSecretAvailableCondition)
		Expect(waits.Reason).To(Equal(bootstrapv1.WaitingForSecretDeletionReason))
		Expect(waits.Message).To(And(ContainSubstring("Secret "+machineName), ContainSubstring("garbage collector"), Not(ContainSubstring("delete it,"))))
		Expect(outlook.IsWrong(waits)).To(BeFalse())
		Expect(s.newEvents()).NotTo(ContainElement(ContainSubstring("Warning")))
		Expect(s.reconciler.configOfDataSecret(ctx, earlier)).To(HaveLen(1), "its deletion leads here")

		Expect(s.Delete(ctx, earlier)).To(Succeed())
		Expect(conditions.IsTrue(s.settle(ctx), bootstrapv1.DataSecretAvailableCondition)).To(BeTrue())
		Expect(metav1.IsControlledBy(s.secret(ctx), config)).To(BeTrue())
	})

	It("waits for a pool, which is decided again until the Node is pre-registered", func() {
		s := newSite(newCluster(), newMachine(role("infra", "edge")), newConfig(), newPool("worker"), newPool("infra"), newPool("edge"))
		boots := func(outcome string) float64 {
			return counted("poolboot_boots_total", map[string]string{"stage": "Pending", "outcome": outcome})
		}
		conflicts := func() float64 {
			return counted("poolboot_pool_conflicts_total", map[string]string{"kind": "Machine"})
		}
		held, passed, conflicted := boots(bootstrapv1.PoolConflictReason), boots("Done"), conflicts()
		config := s.settle(ctx)
		Expect(boots(bootstrapv1.PoolConflictReason) - held).To(Equal(1.0))
		Expect(conflicts() - conflicted).To(Equal(1.0))
		Expect(reasonOf(config, clusterv1.ReadyCondition)).To(Equal(bootstrapv1.PoolConflictReason))
		Expect(config.Status.DataSecretName).To(BeEmpty())
		Expect(config.Status.PoolRole).To(BeEmpty())

		relabel := func(labels map[string]string) {
			machine := &clusterv1.Machine{}
			Expect(s.Get(ctx, key, machine)).To(Succeed())
			machine.Labels = labels
			Expect(s.Update(ctx, machine)).To(Succeed())
		}
		relabel(role("infra"))
		Expect(s.settle(ctx).Status.PoolRole).To(Equal("infra"))
		Expect(boots("Done") - passed).To(Equal(1.0))
		relabel(role("edge"))
		config = s.settle(ctx)
		Expect(config.Status.PoolRole).To(Equal("edge"))

		config.Status.NodeRef = bootstrapv1.NodeReference{Name: machineName, UID: "node-uid"}
		Expect(s.Status().Update(ctx, config)).To(Succeed())
		relabel(role("infra"))
		config = s.settle(ctx)
		Expect(config.Status.PoolRole).To(Equal("edge"))
		Expect(reasonOf(config, bootstrapv1.PoolDecidedCondition)).To(Equal(bootstrapv1.PoolRecordedReason))
	})

	It("is not created while the Cluster is paused", func() {
		cluster := newCluster()
		cluster.Spec.Paused = ptr.To(true)
		s := newSite(cluster, newMachine(nil), newConfig(), newPool("worker"))
		config := s.settle(ctx)
		Expect(conditions.IsTrue(config, clusterv1.PausedCondition)).To(BeTrue())
		Expect(s.Get(ctx, key, &corev1.Secret{})).NotTo(Succeed())
	})

	It("is not created by a manager with another watch filter", func() {
		s := usual()
		s.reconciler.WatchFilterValue = "mine"
		s.settle(ctx)
		Expect(s.Writes).To(BeZero())
	})
})

// secretAfter returns the data Secret after the reconciler has settled.
func (s *site) secretAfter(ctx context.Context) *corev1.Secret {
	GinkgoHelper()
	s.settle(ctx)
	return s.secret(ctx)
}
