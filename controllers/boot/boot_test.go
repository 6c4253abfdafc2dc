package boot

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/node"
)

// expectPrepared checks that all that a host needs stands once, and that it fits together.
func expectPrepared(ctx context.Context, w *world, nodeName string) {
	GinkgoHelper()
	config := w.config(ctx)
	status := config.Status

	n := w.node(ctx)
	Expect(n.Name).To(Equal(nodeName))
	Expect(n.Labels).To(And(
		HaveKeyWithValue(infraLabel, ""),
		HaveKeyWithValue(poolv1.NodePoolLabel, "infra"),
		HaveKeyWithValue(poolv1.NodeMetal3UUIDLabel, "uid-of-the-host"),
	))
	Expect(n.Annotations).To(And(
		HaveKeyWithValue(poolv1.NodeConfigAnnotation, namespace+"/"+machineName),
		HaveKeyWithValue(poolv1.NodeCurrentConfigAnnotation, "rendered-edge-infra-1"),
		HaveKeyWithValue(poolv1.NodeDesiredConfigAnnotation, "rendered-edge-infra-1"),
	))
	Expect(n.Spec.ProviderID).To(Equal("metal3://" + namespace + "/" + hostName + "/" + machineName))
	Expect(n.Spec.Taints).To(ContainElements(
		corev1.Taint{Key: poolv1.NodeUnassignedTaint, Effect: corev1.TaintEffectNoSchedule},
		corev1.Taint{Key: clusterv1.NodeUninitializedTaint.Key, Effect: corev1.TaintEffectNoSchedule},
	))
	Expect(n.Status.Conditions).To(ContainElement(And(
		HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionFalse), HaveField("Reason", node.WaitingForKubeletReason))))

	Expect(status.Pool).To(Equal("infra"))
	Expect(status.Configuration).To(Equal("rendered-edge-infra-1"))
	Expect(status.Host).To(HaveValue(Equal(bootstrapv1.HostReference{Name: hostName, Namespace: namespace, UID: "uid-of-the-host"})))
	Expect(status.Node).To(HaveValue(Equal(bootstrapv1.NodeReference{Name: nodeName, UID: string(n.UID)})))
	Expect(conditions.IsTrue(config, bootstrapv1.BootPreparedCondition)).To(BeTrue())
	Expect(needOf(config)).To(Or(Equal(nothing), Equal(upkeep), Equal(standing)), "the request is answered")

	credentials := w.credentials(ctx)
	Expect(credentials).To(HaveLen(1), "one live credential")
	token := credentials[0]
	Expect(string(token.Data["token-id"])).To(Equal(status.Boot.CredentialID))
	Expect(status.Boot.CredentialExpirationTime.Time).To(BeTemporally("~", time.Now().Add(15*time.Minute), time.Minute))

	overlays := w.overlays(ctx)
	Expect(overlays).To(HaveLen(1))
	overlay := overlays[0]
	Expect(overlay.Name).To(Equal("overlay-uid-of-the-config"))
	Expect(overlay.Labels).To(HaveKeyWithValue(bootstrapv1.OverlayLabel, "uid-of-the-config"))
	Expect(overlay.Annotations).To(HaveKeyWithValue(bootstrapv1.OverlayConfigurationAnnotation, "rendered-edge-infra-1"))
	Expect(overlay.Annotations).To(HaveKeyWithValue(bootstrapv1.OverlayExpiresAnnotation, string(token.Data["expiration"])))
	Expect(fileIn(overlay.Data[bootstrapv1.OverlayKey], "/etc/kubernetes/bootstrap-kubelet.conf")).To(And(
		ContainSubstring(string(token.Data["token-id"])+"."+string(token.Data["token-secret"])),
		ContainSubstring("https://192.0.2.10:6443"),
	))
}

// fileIn returns the contents of a file of an Ignition config.
func fileIn(raw []byte, path string) string {
	GinkgoHelper()
	config, err := ignition.Parse(raw)
	Expect(err).NotTo(HaveOccurred())
	for _, f := range config.Storage.Files {
		if f.Path == path {
			return decoded(f.Contents)
		}
	}
	Fail("no file " + path)
	return ""
}

// expectNotPrepared checks that the condition tells why, and that nothing a host could boot with stands.
func expectNotPrepared(ctx context.Context, w *world, reason string, message ...string) {
	GinkgoHelper()
	condition := conditions.Get(w.config(ctx), bootstrapv1.BootPreparedCondition)
	Expect(condition).NotTo(BeNil())
	Expect(condition.Status).To(Equal(metav1.ConditionFalse))
	Expect(condition.Reason).To(Equal(reason), condition.Message)
	for _, part := range message {
		Expect(condition.Message).To(ContainSubstring(part))
	}
	Expect(w.credentials(ctx)).To(BeEmpty())
	Expect(w.overlays(ctx)).To(BeEmpty())
	Expect(w.told()).To(ContainElement(HavePrefix("Warning " + reason + " ")))
}

var _ = Describe("A host that asks for its configuration", func() {
	var s *setting
	BeforeEach(func() { s = newSetting() })

	It("finds its Node in its pool, a credential, and its overlay", func(ctx SpecContext) {
		w := s.world()
		Expect(w.ask(ctx)).To(BeZero())
		expectPrepared(ctx, w, machineName)
		Expect(w.told()).To(ConsistOf(ContainSubstring("Normal " + bootstrapv1.EventBootPrepared)))
	})

	It("costs five writes once its cluster's rights have been seen to", func(ctx SpecContext) {
		w := s.world()
		w.reconciler.rights.Store(clusterRights{cluster: s.cluster.UID}, true)
		Expect(w.ask(ctx)).To(BeZero())
		Expect(w.writes).To(Equal(5))
		Expect(w.reconcile(ctx)).To(BeZero())
		Expect(w.writes).To(Equal(5), "a second look costs none")
	})

	It("is counted by what became of it", func(ctx SpecContext) {
		count := func(outcome string) float64 {
			return counted("poolboot_boots_total", map[string]string{"cluster": namespace + "/" + s.cluster.Name, "stage": "Preparing", "outcome": outcome})
		}
		made := func() float64 {
			return counted("poolboot_preregistrations_total", map[string]string{"pool": "infra", "outcome": "Created"})
		}
		prepared, failed, before := count("Done"), count(bootstrapv1.PoolNotRenderedReason), made()
		configuration := s.infra.Status.Configuration
		s.infra.Status.Configuration = nil
		w := s.world()
		_, err := w.ask(ctx)
		Expect(err).To(HaveOccurred())
		change(ctx, w.management, s.infra, func(p *poolv1.MachineConfigPool) { p.Status.Configuration = configuration })
		Expect(w.reconcile(ctx)).To(BeZero())
		Expect(count(bootstrapv1.PoolNotRenderedReason) - failed).To(Equal(1.0))
		Expect(count("Done") - prepared).To(Equal(1.0))
		Expect(made() - before).To(Equal(1.0))
	})

	It("is told apart by the name of its host where the config says so", func(ctx SpecContext) {
		s.config.Spec.NodeName = bootstrapv1.NodeNameFromHost
		w := s.world()
		Expect(w.ask(ctx)).To(BeZero())
		expectPrepared(ctx, w, hostName)
	})

	It("joins by kubeadm where the config says so, with the rights that kubeadm needs", func(ctx SpecContext) {
		s.config.Spec.Join = bootstrapv1.Join{Kubeadm: &bootstrapv1.KubeadmJoin{KubeadmPath: "/usr/bin/kubeadm"}}
		w := s.world()
		Expect(w.ask(ctx)).To(BeZero())
		Expect(w.overlays(ctx)).To(HaveLen(1))
		_, seenTo := w.reconciler.rights.Load(clusterRights{cluster: s.cluster.UID, kubeadm: true})
		Expect(seenTo).To(BeTrue())
	})

	It("is prepared even when the config server's clock is ahead", func(ctx SpecContext) {
		s.config.Status.Boot.RequestedTime = microTime(time.Now().Add(time.Hour))
		w := s.world()
		Expect(w.reconcile(ctx)).To(BeZero())
		expectPrepared(ctx, w, machineName)
	})

	Context("again", func() {
		It("keeps its Node and a credential that still lives", func(ctx SpecContext) {
			w := s.world()
			Expect(w.ask(ctx)).To(BeZero())
			first := w.config(ctx).Status
			Expect(w.ask(ctx)).To(BeZero())
			expectPrepared(ctx, w, machineName)
			second := w.config(ctx).Status
			Expect(second.Node).To(Equal(first.Node))
			Expect(second.Boot.CredentialID).To(Equal(first.Boot.CredentialID))
			Expect(second.Boot.PreparedTime.Time).To(BeTemporally(">", first.Boot.PreparedTime.Time))
		})

		It("gets a new credential for one that ends soon, and the old one is deleted", func(ctx SpecContext) {
			w := s.world()
			Expect(w.ask(ctx)).To(BeZero())
			first := w.config(ctx).Status
			token := w.credentials(ctx)[0]
			change(ctx, w.workload, &token, func(t *corev1.Secret) {
				t.Data["expiration"] = []byte(time.Now().Add(2 * time.Minute).UTC().Format(time.RFC3339))
			})
			Expect(w.ask(ctx)).To(BeZero())
			expectPrepared(ctx, w, machineName)
			Expect(w.config(ctx).Status.Node).To(Equal(first.Node))
			Expect(w.config(ctx).Status.Boot.CredentialID).NotTo(Equal(first.Boot.CredentialID))
		})

		It("boots with what its pool has become, and the Node says so", func(ctx SpecContext) {
			w := s.world()
			Expect(w.ask(ctx)).To(BeZero())
			change(ctx, w.management, s.infra, func(p *poolv1.MachineConfigPool) { p.Status.Configuration.Name = "rendered-edge-infra-2" })
			Expect(w.ask(ctx)).To(BeZero())
			Expect(w.config(ctx).Status.Configuration).To(Equal("rendered-edge-infra-2"))
			Expect(w.node(ctx).Annotations).To(HaveKeyWithValue(poolv1.NodeCurrentConfigAnnotation, "rendered-edge-infra-2"))
			Expect(w.overlays(ctx)[0].Annotations).To(HaveKeyWithValue(bootstrapv1.OverlayConfigurationAnnotation, "rendered-edge-infra-2"))
		})

		It("stays in the recorded pool when its Machine is relabelled after its Node was made", func(ctx SpecContext) {
			w := s.world()
			Expect(w.ask(ctx)).To(BeZero())
			s.config.Spec.Pool = poolv1.RoleWorker
			change(ctx, w.management, w.config(ctx), func(c *bootstrapv1.PoolbootConfig) { c.Spec.Pool = poolv1.RoleWorker })
			Expect(w.ask(ctx)).To(BeZero())
			expectPrepared(ctx, w, machineName)
		})

		It("gets a new Node when the first was deleted, on record by its new UID", func(ctx SpecContext) {
			w := s.world()
			Expect(w.ask(ctx)).To(BeZero())
			first := w.node(ctx)
			Expect(w.workload.Delete(ctx, first)).To(Succeed())
			Expect(w.ask(ctx)).To(BeZero())
			expectPrepared(ctx, w, machineName)
			Expect(w.node(ctx).UID).NotTo(Equal(first.UID))
		})
	})

	It("goes to the pool that the Machine's labels name when it asks, not when its Secret was made", func(ctx SpecContext) {
		s.config.Status.Pool = poolv1.RoleWorker
		w := s.world()
		Expect(w.ask(ctx)).To(BeZero())
		expectPrepared(ctx, w, machineName)
		Expect(w.told()).To(ContainElement(ContainSubstring("Normal " + bootstrapv1.EventPoolChanged)))
	})

	DescribeTable("gets nothing, and the condition says why,",
		func(ctx SpecContext, spoil func(), reason string, message ...string) {
			spoil()
			w := s.world()
			_, err := w.ask(ctx)
			Expect(err).To(HaveOccurred(), "a fault backs off")
			expectNotPrepared(ctx, w, reason, message...)
			written := w.writes
			_, err = w.reconcile(ctx)
			Expect(err).To(HaveOccurred())
			Expect(w.told()).To(BeEmpty(), "the same is not told twice")
			Expect(w.writes).To(BeNumerically("<=", written))
		},
		Entry("while its pool is not rendered", func() { s.infra.Status.Configuration = nil },
			bootstrapv1.PoolNotRenderedReason, "edge-infra", "status.configuration"),
		Entry("when its pool does not exist", func() { s.config.Spec.Pool = "storage" },
			bootstrapv1.PoolNotFoundReason, "storage"),
		Entry("when two pools match", func() {
			s.worker.Spec.Role = "storage"
			s.machine.Labels[poolv1.NodeRoleLabelPrefix+"storage"] = ""
		}, bootstrapv1.PoolConflictReason, "infra", "storage"),
		Entry("when its pool's selector can't be registered", func() {
			s.config.Spec.Pool = "infra"
			s.infra.Spec.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: infraLabel, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"no"}}}}
		}, bootstrapv1.PoolNotRegistrableReason, "edge-infra"),
		Entry("when two sources want different values for one label", func() {
			s.infra.Spec.NodeLabels = map[string]string{"example.com/rack": "a"}
			s.config.Spec.NodeLabels = map[string]string{"example.com/rack": "b"}
		}, bootstrapv1.LabelConflictReason, "example.com/rack"),
		Entry("when the extra configuration can't be read", func() {
			s.config.Spec.ExtraConfig = &bootstrapv1.ExtraConfig{Config: &runtime.RawExtension{Raw: json.RawMessage(`{"ignition":{"version":"9.9.9"}}`)}}
		}, bootstrapv1.ExtraConfigInvalidReason, "spec.extraConfig", "9.9.9"),
		Entry("when the Cluster has no endpoint", func() { s.cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{} },
			bootstrapv1.BootFailedReason, "spec.controlPlaneEndpoint"),
	)

	It("waits for a host whose record is not complete, and goes on when it is", func(ctx SpecContext) {
		consumer := s.host.Spec.ConsumerRef
		s.host.Spec.ConsumerRef = nil
		w := s.world()
		Expect(w.ask(ctx)).To(BeZero(), "the watch on hosts tells")
		expectNotPrepared(ctx, w, bootstrapv1.HostNotReadyReason, hostName)
		change(ctx, w.management, s.host, func(h *hostObject) { h.Spec.ConsumerRef = consumer })
		Expect(w.reconcile(ctx)).To(BeZero())
		expectPrepared(ctx, w, machineName)
	})

	DescribeTable("waits for a workload cluster that is down, and goes on when it is up",
		func(ctx SpecContext, down, up func(w *world)) {
			w := s.world()
			down(w)
			result, err := w.ask(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(result.RequeueAfter).To(Equal(retryInterval))
			expectNotPrepared(ctx, w, bootstrapv1.WorkloadClusterUnreachableReason, "edge")
			up(w)
			Expect(w.reconcile(ctx)).To(BeZero())
			expectPrepared(ctx, w, machineName)
		},
		Entry("with no connection", func(w *world) { w.clusters.down = true }, func(w *world) { w.clusters.down = false }),
		Entry("with a connection that has just broken", func(w *world) {
			w.before = func(n int) error {
				if n == 1 {
					return fmt.Errorf("edge: %w", errRefused)
				}
				return nil
			}
		}, func(w *world) { clear(w.reconciler.outages.down) }),
	)

	DescribeTable("is nobody's business",
		func(ctx SpecContext, unless func(w *world)) {
			s.config.Status.Boot.RequestedTime = microTime(time.Now())
			unless(nil)
			w := s.world()
			Expect(w.reconcile(ctx)).To(BeZero())
			Expect(w.writes).To(BeZero())
		},
		Entry("while its cluster is paused", func(*world) { s.cluster.Spec.Paused = ptr.To(true) }),
		Entry("while its config is paused", func(*world) { s.config.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} }),
		Entry("when its Machine is being deleted", func(*world) {
			s.machine.Finalizers, s.machine.DeletionTimestamp = []string{"keep"}, ptr.To(metav1.Now())
		}),
		Entry("when its config is being deleted", func(*world) { s.config.DeletionTimestamp = ptr.To(metav1.Now()) }),
		Entry("when no Machine owns its config", func(*world) { s.config.OwnerReferences = nil }),
		Entry("when its token is revoked", func(*world) {
			s.config.Annotations = map[string]string{bootstrapv1.TokenHashAnnotation: bootstrapv1.TokenRevoked}
		}),
		Entry("when its Node is in its pool", func(*world) {
			conditions.Set(s.config, metav1.Condition{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionTrue, Reason: bootstrapv1.NodeReadyInPoolReason})
		}),
		Entry("when its request is answered", func(*world) { s.config.Status.Boot.PreparedTime = microTime(time.Now().Add(time.Second)) }),
	)

	It("is not looked after by a manager that watches other objects", func(ctx SpecContext) {
		w := s.world()
		w.reconciler.WatchFilterValue = "another"
		Expect(w.ask(ctx)).To(BeZero())
		Expect(w.writes).To(BeZero())
	})

	It("is waited for in plain sight from when it is chosen, at the cost of one write and no live read", func(ctx SpecContext) {
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
		Expect(condition.Reason).To(Equal(bootstrapv1.WaitingForHostReason))
		Expect(condition.Message).To(ContainSubstring(hostName))
		Expect(w.config(ctx).Status.Host).To(HaveValue(HaveField("Name", hostName)))
		chosen := w.config(ctx).Status.Boot.HostChosenTime
		Expect(chosen.Time).To(BeTemporally("~", time.Now(), time.Minute))
		Expect(w.told()).To(BeEmpty())

		w.reconciler.APIReader = w.reconciler.Client
		Expect(w.ask(ctx)).To(BeZero())
		Expect(w.config(ctx).Status.Boot.HostChosenTime).To(Equal(chosen), "it is the same host")
	})

	It("leaves what others write to its config alone", func(ctx SpecContext) {
		w := s.world()
		served, intervene := microTime(time.Now()), false
		w.before = func(n int) error {
			if intervene = !intervene; !intervene {
				return nil
			}
			change(ctx, w.management, w.config(ctx), func(c *bootstrapv1.PoolbootConfig) {
				c.Status.Boot.ServedTime = served
				conditions.Set(c, metav1.Condition{Type: fmt.Sprintf("Write%d", n), Status: metav1.ConditionTrue, Reason: "ByAnother"})
			})
			return nil
		}
		Expect(w.ask(ctx)).To(BeZero())
		expectPrepared(ctx, w, machineName)
		Expect(w.config(ctx).Status.Boot.ServedTime.Equal(served)).To(BeTrue())
		for n := 1; n <= w.writes; n += 2 {
			Expect(conditions.IsTrue(w.config(ctx), fmt.Sprintf("Write%d", n))).To(BeTrue())
		}
	})

	It("leaves nothing behind when its config is deleted at any moment", func(ctx SpecContext) {
		for moment := 1; moment <= 7; moment++ {
			w := newSetting().world()
			w.before = func(n int) error {
				if n == moment {
					config := w.config(ctx)
					Expect(w.management.Delete(ctx, config)).To(Succeed())
					change(ctx, w.management, w.config(ctx), func(c *bootstrapv1.PoolbootConfig) { c.Finalizers = nil })
				}
				return nil
			}
			Expect(w.ask(ctx)).To(BeZero())
			Expect(w.management.Get(ctx, client.ObjectKey{Namespace: namespace, Name: machineName}, &bootstrapv1.PoolbootConfig{})).NotTo(Succeed())
			Expect(w.nodes(ctx)).To(BeEmpty(), "moment %d", moment)
			Expect(w.credentials(ctx)).To(BeEmpty(), "moment %d", moment)
			Expect(w.overlays(ctx)).To(BeEmpty(), "moment %d", moment)
		}
	})
})
