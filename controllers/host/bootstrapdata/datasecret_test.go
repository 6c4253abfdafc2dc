package bootstrapdata

import (
	"context"
	"encoding/base64"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/ownwrites"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/scrape"
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

	It("is not written again until the cache contains the last write", func() {
		s := newUsualSite()
		before := &bootstrapv1.PoolbootConfig{}
		Expect(s.Get(ctx, key, before)).To(Succeed())
		s.settle(ctx)
		s.cached = before
		writes := s.Writes
		Expect(s.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: key})).To(Equal(ctrl.Result{RequeueAfter: ownwrites.MaxLag}))
		Expect(s.Writes).To(Equal(writes))
	})

	It("fulfills the contract and points the host to the config server", func() {
		s := newUsualSite()
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
		s := newUsualSite()
		s.settle(ctx)
		Expect(s.Writes).To(Equal(3))
		Expect(s.reads).To(BeZero(), "the API server was not read")
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
			s := newUsualSite()
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
				s := newUsualSite()
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
		Expect(NeedsSecret(config)).To(BeTrue(), "its deletion leads here")

		Expect(s.Delete(ctx, earlier)).To(Succeed())
		Expect(conditions.IsTrue(s.settle(ctx), bootstrapv1.DataSecretAvailableCondition)).To(BeTrue())
		Expect(metav1.IsControlledBy(s.secret(ctx), config)).To(BeTrue())
	})

	It("waits for a pool, which is decided again until the Node is pre-registered", func() {
		s := newSite(newCluster(), newMachine(role("infra", "edge")), newConfig(), newPool("worker"), newPool("infra"), newPool("edge"))
		boots := func(outcome string) float64 {
			return scrape.Sum(metrics.Registry, "poolboot_boots_total", map[string]string{"stage": "Pending", "outcome": outcome})
		}
		conflicts := func() float64 {
			return scrape.Sum(metrics.Registry, "poolboot_pool_conflicts_total", map[string]string{"kind": "Machine"})
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
		s := newUsualSite()
		s.reconciler.hosts.WatchFilterValue = "mine"
		s.settle(ctx)
		Expect(s.Writes).To(BeZero())
	})
})
