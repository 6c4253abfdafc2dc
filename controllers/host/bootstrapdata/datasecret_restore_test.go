package bootstrapdata

import (
	"context"
	"maps"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

var _ = Describe("The data Secret after a move, a restore or a deletion", func() {
	var ctx context.Context
	BeforeEach(func(c SpecContext) { ctx = c })

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
			s := newUsualSite()
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
		s := newUsualSite()
		token := pointerIn(s.secretAfter(ctx)).Token
		status := s.settle(ctx).Status
		m := moved(s, func(c *bootstrapv1.PoolbootConfig, _ *corev1.Secret) { c.Status = status })
		config := m.settle(ctx)
		Expect(config.Annotations).To(haveToken(config, token))
	})

	It("stays expired when it is moved", func() {
		s := newUsualSite()
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
			s := newUsualSite()
			old := pointerIn(s.secretAfter(ctx)).Token
			m := moved(s, func(c *bootstrapv1.PoolbootConfig, secret *corev1.Secret) {
				c.Annotations[bootstrapv1.RotateTokenAnnotation] = ""
				if before {
					return
				}
				value, err := ignition.Pointer{URL: pointerURL, Token: access.NewToken()}.Marshal()
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
		s := newUsualSite()
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
			value, err := ignition.Pointer{URL: pointerURL, Token: access.NewToken()}.Marshal()
			Expect(err).NotTo(HaveOccurred())
			secret.Data[bootstrapv1.DataSecretValueKey] = value
		}),
		Entry("annotations with another UID", bootstrapv1.DataSecretFailedReason, "not the recorded one", func(c *bootstrapv1.PoolbootConfig, _ *corev1.Secret) {
			c.Annotations[bootstrapv1.TokenUIDAnnotation] = "another"
		}),
		Entry("another config's annotations and Secret", bootstrapv1.DataSecretFailedReason, "that of PoolbootConfig elsewhere/infra-x7k", func(c *bootstrapv1.PoolbootConfig, secret *corev1.Secret) {
			token := pointerIn(secret).Token
			of := access.Address{Role: "infra", NamespacedName: client.ObjectKey{Namespace: "elsewhere", Name: machineName}, PointerID: "machine-uid"}
			maps.Copy(c.Annotations, access.Config(of.NamespacedName, "its-uid").Annotations(token))
			value, err := ignition.Pointer{URL: of.URL(serverURL), Token: token}.Marshal()
			Expect(err).NotTo(HaveOccurred())
			secret.Data[bootstrapv1.DataSecretValueKey] = value
		}),
		Entry("another config's annotations and token", bootstrapv1.DataSecretFailedReason, "not the recorded one", func(c *bootstrapv1.PoolbootConfig, secret *corev1.Secret) {
			of := client.ObjectKey{Namespace: "elsewhere", Name: machineName}
			maps.Copy(c.Annotations, access.Config(of, "its-uid").Annotations(pointerIn(secret).Token))
		}),
		Entry("a Secret that belongs to another config", bootstrapv1.DataSecretNotOwnedReason, "not controlled", func(_ *bootstrapv1.PoolbootConfig, secret *corev1.Secret) {
			secret.OwnerReferences[0].Name, secret.OwnerReferences[0].UID = "another", "another-uid"
		}),
	)

	It("keeps a revoked token revoked", func() {
		s := newUsualSite()
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
			s := newUsualSite()
			secret := s.secretAfter(ctx)
			expectLost(s, lose(s), "delete Machine "+machineName)
			secret.ResourceVersion = ""
			Expect(s.Create(ctx, secret)).To(Succeed())
			lost := &bootstrapv1.PoolbootConfig{}
			Expect(s.Get(ctx, key, lost)).To(Succeed())
			Expect(NeedsSecret(lost)).To(BeTrue(), "its watch brings the config")
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
			s := newUsualSite()
			secret := s.secretAfter(ctx)
			lose(s)
			value, err := ignition.Pointer{URL: pointerURL, Token: access.NewToken()}.Marshal()
			Expect(err).NotTo(HaveOccurred())
			secret.ResourceVersion, secret.Data[bootstrapv1.DataSecretValueKey] = "", value
			Expect(s.Create(ctx, secret)).To(Succeed())
			Expect(available(s.settle(ctx))).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Message", ContainSubstring("not the recorded one"))))
		})

		It("is read from the API server if it is only missing in the cache", func() {
			s := newUsualSite()
			s.settle(ctx)
			s.reconciler.Secrets = newSite().Client
			Expect(conditions.IsTrue(s.settle(ctx), clusterv1.ReadyCondition)).To(BeTrue())
			Expect(s.reads).To(Equal(1))
		})

		It("is not needed after the host has joined", func() {
			s := newUsualSite()
			config := s.settle(ctx)
			record.RevokeToken(config)
			Expect(s.Update(ctx, config)).To(Succeed())
			Expect(NeedsSecret(config)).To(BeFalse())
			Expect(conditions.IsTrue(lose(s), clusterv1.ReadyCondition)).To(BeTrue())
			config = s.settle(ctx)
			config.Status = bootstrapv1.PoolbootConfigStatus{} // as after a move without the Secret
			Expect(s.Status().Update(ctx, config)).To(Succeed())
			Expect(conditions.IsTrue(s.settle(ctx), clusterv1.ReadyCondition)).To(BeTrue())
		})
	})
})
