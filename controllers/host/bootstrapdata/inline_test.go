package bootstrapdata

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
)

// renderedWorker returns a worker pool with one file, and its rendered config.
func renderedWorker() (*poolv1.MachineConfigPool, *poolv1.MachineConfig) {
	GinkgoHelper()
	worker := newPool("worker")
	worker.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"role": "worker"}}
	source := poolv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "50-worker", Labels: map[string]string{"role": "worker"}},
		Spec: poolv1.MachineConfigSpec{Config: &runtime.RawExtension{Raw: []byte(
			`{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/etc/worker","contents":{"source":"data:,worker"}}]}}`)}},
	}
	rendered, err := pool.Render("worker", []poolv1.MachineConfigPool{*worker}, []poolv1.MachineConfig{source})
	Expect(err).NotTo(HaveOccurred())
	worker.Status.Configuration = poolv1.PoolConfiguration{Name: rendered.Name}
	return worker, &poolv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: rendered.Name, Labels: map[string]string{poolv1.RenderedForLabel: "worker"}},
		Spec:       rendered.Spec,
	}
}

func filesIn(secret *corev1.Secret) (paths []string) {
	GinkgoHelper()
	config, err := ignition.Parse(secret.Data[bootstrapv1.DataSecretValueKey])
	Expect(err).NotTo(HaveOccurred())
	for _, file := range config.Storage.Files {
		paths = append(paths, file.Path)
	}
	return paths
}

// tokens returns the IDs of the bootstrap tokens in the workload cluster.
func (s *site) tokens(ctx context.Context) (ids []string) {
	GinkgoHelper()
	secrets := &corev1.SecretList{}
	Expect(s.workload.List(ctx, secrets, client.InNamespace(metav1.NamespaceSystem))).To(Succeed())
	for _, secret := range secrets.Items {
		ids = append(ids, strings.TrimPrefix(secret.Name, "bootstrap-token-"))
	}
	return ids
}

var _ = Describe("An inline data Secret", func() {
	var (
		ctx      context.Context
		worker   *poolv1.MachineConfigPool
		rendered *poolv1.MachineConfig
	)
	BeforeEach(func(c SpecContext) {
		ctx = c
		worker, rendered = renderedWorker()
	})
	usual := func(change ...func(*bootstrapv1.PoolbootConfig)) *site {
		return newSite(newCluster(), newMachine(nil), newConfig(append(change, inlineSource)...), worker, rendered)
	}

	It("contains the configuration of the pool, that of the machine, and a recorded credential", func() {
		s := usual()
		config := s.settle(ctx)
		Expect(conditions.IsTrue(config, clusterv1.ReadyCondition)).To(BeTrue())
		Expect(filesIn(s.secret(ctx))).To(ContainElements("/etc/worker", "/etc/poolboot/kubelet.env", "/etc/kubernetes/bootstrap-kubelet.conf"))
		Expect(config.Status.Boot.ServedConfiguration.Name).To(Equal(rendered.Name))
		Expect(config.Status.Boot.CredentialID).NotTo(BeEmpty())
		Expect(config.Status.Boot.CredentialExpirationTime.Time).To(BeTemporally("~", time.Now().Add(15*time.Minute), time.Minute))
		Expect(s.tokens(ctx)).To(ConsistOf(config.Status.Boot.CredentialID))
		Expect(config.Annotations).NotTo(HaveKey(bootstrapv1.TokenHashAnnotation))
	})

	offer := func() (join.Offer, error) {
		return join.Offer{Agent: assignment.Agent{SHA512: map[string]string{"amd64": "a"}}, ServerURL: serverURL, ServerCA: []byte("the server's CA")}, nil
	}
	// expectAssignment expects that the first assignment of the host is what its data Secret has.
	expectAssignment := func(s *site, config *bootstrapv1.PoolbootConfig) {
		GinkgoHelper()
		stored := &corev1.Secret{}
		Expect(s.Get(ctx, client.ObjectKey{Namespace: "poolboot-system", Name: record.AssignmentName(config.UID)}, stored)).To(Succeed())
		a, err := assignment.Read(stored.Data[bootstrapv1.AssignmentKey])
		Expect(err).NotTo(HaveOccurred())
		Expect(a.Config.Name).To(Equal(rendered.Name))
		part, err := ignition.Parse(a.Machine)
		Expect(err).NotTo(HaveOccurred())
		all, err := ignition.Parse(s.secret(ctx).Data[bootstrapv1.DataSecretValueKey])
		Expect(err).NotTo(HaveOccurred())
		for _, file := range part.Storage.Files {
			Expect(all.Storage.Files).To(ContainElement(file))
		}
		for _, unit := range part.Systemd.Units {
			Expect(all.Systemd.Units).To(ContainElement(unit))
		}
	}

	It("contains what installs the agent later, which starts from what the host has, whatever is upgraded or rotated until then", func() {
		s := usual()
		s.reconciler.Offer = offer
		config := s.settle(ctx)
		expectAssignment(s, config)
		Expect(filesIn(s.secret(ctx))).To(ContainElements(assignment.SettingsPath, "/etc/poolboot/install-agent.sh", "/etc/poolboot/config-server.pem"))
		Expect(filesIn(s.secret(ctx))).NotTo(ContainElement(assignment.ProgramPath), "its host can boot without the config server")
		Expect(config.Annotations).To(HaveKeyWithValue(bootstrapv1.PointerIDAnnotation, "machine-uid"))
		Expect(config.Annotations).NotTo(HaveKey(bootstrapv1.TokenHashAnnotation))

		By("losing status and annotations, as a restore can")
		lost := config.DeepCopy()
		lost.Annotations = nil
		Expect(s.Update(ctx, lost)).To(Succeed())
		lost.Status = bootstrapv1.PoolbootConfigStatus{}
		Expect(s.Status().Update(ctx, lost)).To(Succeed())
		Expect(s.settle(ctx).Annotations).To(HaveKeyWithValue(bootstrapv1.PointerIDAnnotation, "machine-uid"))
	})

	It("contains the recorded credential, whichever write fails, and leaves at most one other behind", func() {
		for _, late := range []bool{false, true} {
			for failing := 1; ; failing++ {
				s := usual()
				s.reconciler.Offer = offer
				s.CrashAt, s.Late = failing, late
				config := s.settle(ctx)
				Expect(conditions.IsTrue(config, clusterv1.ReadyCondition)).To(BeTrue(), "write %d", failing)
				expectAssignment(s, config)
				Expect(s.secret(ctx).Annotations[bootstrapv1.CredentialIDAnnotation]).To(Equal(config.Status.Boot.CredentialID), "write %d", failing)
				Expect(s.tokens(ctx)).To(ContainElement(config.Status.Boot.CredentialID), "write %d", failing)
				Expect(len(s.tokens(ctx))).To(BeNumerically("<=", 2), "write %d", failing)
				if s.Writes < failing {
					break
				}
			}
		}
	})

	It("leaves no credential behind if another writer changes the config before the record", func() {
		s := usual()
		s.connected = false
		waiting := s.settle(ctx)
		other := waiting.DeepCopy()
		metav1.SetMetaDataAnnotation(&other.ObjectMeta, "example.com/note", "written in between")
		Expect(s.Update(ctx, other)).To(Succeed())
		s.cached, s.connected = waiting, true
		Expect(s.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: key})).To(Equal(ctrl.Result{RequeueAfter: status.ConflictRetry}))
		Expect(s.tokens(ctx)).To(BeEmpty())

		s.cached = nil
		config := s.settle(ctx)
		Expect(s.tokens(ctx)).To(ConsistOf(config.Status.Boot.CredentialID))
	})

	It("takes one credential, however often the manager stops before the Secret is created", func() {
		s, crashes := usual(), 0
		s.CrashesAt = func(o client.Object) bool {
			if _, ok := o.(*corev1.Secret); !ok || o.GetName() != machineName || crashes == 3 {
				return false
			}
			crashes++
			return true
		}
		config := s.settle(ctx)
		Expect(crashes).To(Equal(3))
		Expect(s.tokens(ctx)).To(ConsistOf(config.Status.Boot.CredentialID))
	})

	It("restores the record if the status is lost", func() {
		s := usual()
		before := s.settle(ctx)
		lost := before.DeepCopy()
		lost.Status = bootstrapv1.PoolbootConfigStatus{}
		Expect(s.Status().Update(ctx, lost)).To(Succeed())
		after := s.settle(ctx)
		Expect(after.Status.Boot.CredentialID).To(Equal(before.Status.Boot.CredentialID))
		Expect(after.Status.Boot.ServedConfiguration.Name).To(Equal(rendered.Name))
		Expect(s.tokens(ctx)).To(HaveLen(1))
	})

	It("waits for what it needs, and reports what that is", func() {
		bare := worker.DeepCopy()
		bare.Status.Configuration = poolv1.PoolConfiguration{}
		s := newSite(newCluster(), newMachine(nil), newConfig(inlineSource), bare, rendered)
		s.connected = false
		Expect(reasonOf(s.settle(ctx), bootstrapv1.DataSecretAvailableCondition)).To(Equal(bootstrapv1.PoolNotRenderedReason))

		Expect(s.Get(ctx, client.ObjectKeyFromObject(bare), bare)).To(Succeed())
		bare.Status.Configuration = worker.Status.Configuration
		Expect(s.Status().Update(ctx, bare)).To(Succeed())
		Expect(reasonOf(s.settle(ctx), bootstrapv1.DataSecretAvailableCondition)).To(Equal(bootstrapv1.WorkloadClusterUnreachableReason))

		s.connected = true
		Expect(conditions.IsTrue(s.settle(ctx), clusterv1.ReadyCondition)).To(BeTrue())
	})

	It("is not created until the cluster stops approving the certificates of all bootstrap tokens", func() {
		s := usual()
		clock := clocktesting.NewFakeClock(time.Now())
		s.reconciler.approval.Clock = clock
		s.approval = authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: `RBAC: allowed by ClusterRoleBinding "auto-approve"`}
		config := s.settle(ctx)
		Expect(reasonOf(config, bootstrapv1.DataSecretAvailableCondition)).To(Equal(bootstrapv1.CertificatesAutoApprovedReason))
		Expect(conditions.GetMessage(config, bootstrapv1.DataSecretAvailableCondition)).To(ContainSubstring(`ClusterRoleBinding "auto-approve"`))
		Expect(s.tokens(ctx)).To(BeEmpty())
		result, err := s.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: key})
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(Equal(unreachableRetry))

		s.approval = authorizationv1.SubjectAccessReviewStatus{}
		clock.Step(unreachableRetry)
		Expect(conditions.IsTrue(s.settle(ctx), clusterv1.ReadyCondition)).To(BeTrue())
		Expect(s.tokens(ctx)).To(HaveLen(1))
	})

	DescribeTable("is not created while a user must fix",
		func(reason string, change func(*bootstrapv1.PoolbootConfig)) {
			s := usual(change)
			config := s.settle(ctx)
			Expect(reasonOf(config, clusterv1.ReadyCondition)).To(Equal(reason))
			Expect(s.Get(ctx, key, &corev1.Secret{})).NotTo(Succeed())
			Expect(s.newEvents()).To(ContainElement(ContainSubstring(reason)))
		},
		Entry("labels that contradict the pool's", bootstrapv1.LabelConflictReason, func(config *bootstrapv1.PoolbootConfig) {
			config.Spec.Node.Labels = map[string]string{poolv1.NodeRoleLabelPrefix + "worker": "no"}
		}),
		Entry("an extraConfig that is not Ignition", bootstrapv1.ExtraConfigInvalidReason, func(config *bootstrapv1.PoolbootConfig) {
			config.Spec.ExtraConfig = &bootstrapv1.ExtraConfig{Config: &runtime.RawExtension{Raw: []byte(`{"ignition":{"version":"9.9.9"}}`)}}
		}),
	)
})
