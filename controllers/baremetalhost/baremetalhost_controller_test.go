package baremetalhost

import (
	"context"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

var _ = Describe("A BareMetalHost whose annotations name a pool", func() {
	It("gets a PoolbootConfig from the template of the pool, which is deleted with it, and user data once the Secret exists", func(ctx SpecContext) {
		w := newWorld()
		w.settle(ctx)
		config := w.config(ctx)
		Expect(config.Spec.PoolRole).To(Equal("infra"))
		Expect(config.Spec.Host).To(HaveValue(Equal(bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeBareMetalHost, NodeName: key.Name, BareMetalHostName: key.Name})))
		Expect(config.Labels).To(Equal(map[string]string{clusterv1.ClusterNameLabel: "site", "example.com/of": "the-template"}))
		Expect(metav1.IsControlledBy(config, w.host(ctx))).To(BeTrue())
		Expect(w.host(ctx).Spec.UserData).To(BeNil(), "no Secret yet")
		w.settleWithDataSecret(ctx)
		Expect(w.host(ctx).Spec.UserData).To(Equal(own))
		Expect(conditions.IsTrue(w.config(ctx), bootstrapv1.UserDataSetCondition)).To(BeTrue())
		Expect(w.receivedEvents()).To(Equal("Normal PoolbootConfigCreated PoolbootConfig rack1-u12 is created: the host boots into pool infra of Cluster site"))
	})

	DescribeTable("gets no PoolbootConfig if its name identifies something other than a Node:",
		func(name, why string) {
			host := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
				poolv1.HostPoolAnnotation: "infra", poolv1.HostClusterAnnotation: "site"}}}
			cluster := &clusterv1.Cluster{}
			cluster.Spec.ControlPlaneEndpoint.Host = "api.site.example.com"
			refused := refusalReason(host, cluster)
			Expect(refused).NotTo(BeNil())
			Expect(refused.Reason).To(Equal(poolv1.EventHostRequestInvalid))
			Expect(refused.Message).To(And(ContainSubstring(why), HaveSuffix("use another name for the host")))
		},
		Entry("the API server's Service", "kubernetes.default.svc", "the API server's Service"),
		Entry("a Service", "dns.kube-system.svc", "the form of the name of a Service"),
		Entry("the short name of the API server's Service", "kubernetes", "the API server's Service"),
		Entry("the machine itself", "localhost", "the local machine"),
		Entry("the control plane endpoint", "api.site.example.com", "the cluster's control plane endpoint"),
	)

	DescribeTable("gets nothing, and one event reports why,",
		func(ctx SpecContext, change func(*bmov1alpha1.BareMetalHost), why string) {
			w := newWorld(change)
			w.settle(ctx)
			w.settle(ctx)
			Expect(w.config(ctx)).To(BeNil())
			Expect(w.writes).To(BeZero())
			received := w.receivedEvents()
			Expect(received).To(And(HavePrefix("Warning "), ContainSubstring(why)))
			Expect(strings.Count(received, "\n")).To(BeZero(), received)
		},
		Entry("when another consumer provisions it", consumed, "Metal3Machine m1 is the consumer of the host"),
		Entry("without a Cluster", annotated(poolv1.HostClusterAnnotation, ""), "add "+poolv1.HostClusterAnnotation),
		Entry("without a pool", annotated(poolv1.HostPoolAnnotation, ""), "add "+poolv1.HostPoolAnnotation),
		Entry("with a pool that does not exist", annotated(poolv1.HostPoolAnnotation, "gpu"), "has no MachineConfigPool with role gpu"),
		Entry("with a Cluster that does not exist", annotated(poolv1.HostClusterAnnotation, "elsewhere"), "Cluster elsewhere does not exist"),
		Entry("with a pool that admits only Machines", annotated(poolv1.HostPoolAnnotation, "worker"), "admits only Machines"),
		Entry("with a pool whose template does not exist", annotated(poolv1.HostPoolAnnotation, "edge"), "PoolbootConfigTemplate none"),
		Entry("when its image gets no user data", func(h *bmov1alpha1.BareMetalHost) {
			h.Spec.Image = &bmov1alpha1.Image{DiskFormat: ptr.To("live-iso")}
		}, "HostImageIgnoresUserData"),
		Entry("when it is externally provisioned", func(h *bmov1alpha1.BareMetalHost) { h.Spec.ExternallyProvisioned = true }, "enrollment token"),
	)

	It("gets nothing if it does not own the PoolbootConfig with its name", func(ctx SpecContext) {
		w := newWorld()
		theirs := &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		Expect(w.Create(ctx, theirs)).To(Succeed())
		Expect(w.reconciler.Reconcile(ctx, request)).Error().NotTo(HaveOccurred())
		Expect(w.receivedEvents()).To(ContainSubstring("already exists and does not belong to this host"))
		Expect(w.config(ctx).Spec.Host).To(BeZero())
	})

	It("is not changed while its Cluster or the host is paused, as during a move", func(ctx SpecContext) {
		w := newWorld(annotated(bmov1alpha1.PausedAnnotation, "metal3.io/capm3"))
		w.settle(ctx)
		Expect(w.config(ctx)).To(BeNil())
		w.change(ctx, annotated(bmov1alpha1.PausedAnnotation, ""))
		cluster := &clusterv1.Cluster{}
		Expect(w.Get(ctx, clusterKey, cluster)).To(Succeed())
		cluster.Spec.Paused = ptr.To(true)
		Expect(w.Update(ctx, cluster)).To(Succeed())
		w.settle(ctx)
		Expect(w.config(ctx)).To(BeNil())
	})

	It("keeps the user data that a user gave it, and a condition and an event name the remedy", func(ctx SpecContext) {
		mine := &corev1.SecretReference{Namespace: key.Namespace, Name: "mine"}
		w := newWorld(func(h *bmov1alpha1.BareMetalHost) { h.Spec.UserData = mine })
		Expect(w.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: mine.Namespace, Name: mine.Name}})).To(Succeed())
		w.settleWithDataSecret(ctx)
		Expect(w.host(ctx).Spec.UserData).To(Equal(mine))
		Expect(conditions.GetReason(w.config(ctx), bootstrapv1.UserDataSetCondition)).To(Equal(bootstrapv1.UserDataTakenReason))
		Expect(w.receivedEvents()).To(ContainSubstring("Warning UserDataTaken spec.userData of BareMetalHost rack1-u12 is Secret mine, which is not Poolboot's: remove it"))
		w.change(ctx, func(h *bmov1alpha1.BareMetalHost) { h.Spec.UserData = nil })
		w.settle(ctx)
		Expect(w.host(ctx).Spec.UserData).To(Equal(own))
		Expect(conditions.IsTrue(w.config(ctx), bootstrapv1.UserDataSetCondition)).To(BeTrue())
	})

	DescribeTable("with the user data of a deleted Machine, whose Secret does not exist any more, gets its own, and is not installed without a configuration,",
		func(ctx SpecContext, state bmov1alpha1.ProvisioningState, change func(*corev1.SecretReference), reason string) {
			left := &corev1.SecretReference{Namespace: key.Namespace, Name: "of-a-deleted-machine"}
			change(left)
			w := newWorld(inState(state), func(h *bmov1alpha1.BareMetalHost) { h.Spec.UserData = left })
			w.settleWithDataSecret(ctx)
			Expect(conditions.GetReason(w.config(ctx), bootstrapv1.UserDataSetCondition)).To(Equal(reason))
			if reason == bootstrapv1.UserDataSetReason {
				Expect(w.host(ctx).Spec.UserData).To(Equal(own))
			} else {
				Expect(w.host(ctx).Spec.UserData).To(Equal(left))
			}
		},
		Entry("when it is available", bmov1alpha1.StateAvailable, func(*corev1.SecretReference) {}, bootstrapv1.UserDataSetReason),
		Entry("without a namespace, which is that of the host", bmov1alpha1.StateAvailable, func(to *corev1.SecretReference) { to.Namespace = "" }, bootstrapv1.UserDataSetReason),
		Entry("when Metal3 waits for the Secret", bmov1alpha1.StateProvisioning, func(*corev1.SecretReference) {}, bootstrapv1.UserDataSetReason),
		Entry("unless it is installed already", bmov1alpha1.StateProvisioned, func(*corev1.SecretReference) {}, bootstrapv1.HostProvisionedBeforeReason),
		Entry("unless it is in another namespace, in which Poolboot looks for nothing", bmov1alpha1.StateAvailable,
			func(to *corev1.SecretReference) { to.Namespace = "elsewhere" }, bootstrapv1.UserDataTakenReason),
	)

	It("gets its user data soon after the Secret of a deleted Machine is deleted, which causes no event of the host", func(ctx SpecContext) {
		left := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "of-a-deleted-machine"}}
		w := newWorld(func(h *bmov1alpha1.BareMetalHost) {
			h.Spec.UserData = &corev1.SecretReference{Namespace: left.Namespace, Name: left.Name}
		})
		Expect(w.Create(ctx, left)).To(Succeed())
		w.settleWithDataSecret(ctx)
		Expect(w.reconciler.Reconcile(ctx, request)).To(HaveField("RequeueAfter", BeNumerically(">", 0)))
		Expect(w.Delete(ctx, left)).To(Succeed())
		w.settle(ctx)
		Expect(w.host(ctx).Spec.UserData).To(Equal(own))
		Expect(w.reconciler.Reconcile(ctx, request)).To(BeZero())
	})

	It("is never advised to remove user data while it is being installed, because it would be installed without any", func(ctx SpecContext) {
		w := newWorld(inState(bmov1alpha1.StateProvisioning), func(h *bmov1alpha1.BareMetalHost) { h.Spec.UserData = &corev1.SecretReference{Name: "mine"} })
		Expect(w.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "mine"}})).To(Succeed())
		w.settleWithDataSecret(ctx)
		Expect(w.receivedEvents()).To(ContainSubstring("is Secret mine, which is not Poolboot's: remove its spec.image, remove spec.userData when the host is available, and add the image again"))
	})

	It("keeps the user data that a user gives it at the same moment", func(ctx SpecContext) {
		w := newWorld()
		w.settle(ctx)
		w.changeConfig(ctx, func(c *bootstrapv1.PoolbootConfig) { c.Status.DataSecretName = c.Name })
		w.beforeWrite = func(ctx context.Context) {
			w.beforeWrite = nil
			Expect(w.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "mine"}})).To(Succeed())
			w.change(ctx, func(h *bmov1alpha1.BareMetalHost) { h.Spec.UserData = &corev1.SecretReference{Name: "mine"} })
		}
		w.settle(ctx)
		Expect(w.host(ctx).Spec.UserData.Name).To(Equal("mine"))
	})

	It("is reported if it was provisioned without user data, which then has no effect", func(ctx SpecContext) {
		w := newWorld(inState(bmov1alpha1.StateProvisioned))
		w.settleWithDataSecret(ctx)
		Expect(w.host(ctx).Spec.UserData).To(BeNil())
		Expect(conditions.GetReason(w.config(ctx), bootstrapv1.UserDataSetCondition)).To(Equal(bootstrapv1.HostProvisionedBeforeReason))
		Expect(w.receivedEvents()).To(ContainSubstring("remove its spec.image"))
	})

	It("moves to another pool before it boots, with the template of that pool and the same user data", func(ctx SpecContext) {
		w := newWorld()
		w.settleWithDataSecret(ctx)
		w.receivedEvents()
		w.change(ctx, annotated(poolv1.HostPoolAnnotation, "storage"))
		w.settle(ctx)
		Expect(w.config(ctx).Spec).To(And(HaveField("PoolRole", "storage"), HaveField("Node.Labels", HaveKey("example.com/disk")), HaveField("Host.BareMetalHostName", key.Name)))
		Expect(w.config(ctx).UID).To(BeEquivalentTo("config-uid"))
		Expect(w.host(ctx).Spec.UserData).To(Equal(own))
		Expect(w.receivedEvents()).To(ContainSubstring("boots into pool storage instead of infra"))
	})

	It("does not move by its annotation once its Node exists, because labels decide then", func(ctx SpecContext) {
		w := newWorld()
		w.settleWithDataSecret(ctx)
		w.receivedEvents()
		w.changeConfig(ctx, func(c *bootstrapv1.PoolbootConfig) {
			c.Status.PoolRole, c.Status.NodeRef = "infra", bootstrapv1.NodeReference{Name: key.Name, UID: "node-uid"}
		})
		w.change(ctx, func(h *bmov1alpha1.BareMetalHost) {
			inState(bmov1alpha1.StateProvisioned)(h)
			annotated(poolv1.HostPoolAnnotation, "storage")(h)
		})
		w.settle(ctx)
		Expect(w.config(ctx).Spec.PoolRole).To(Equal("infra"))
		Expect(w.receivedEvents()).To(ContainSubstring("change the Node's labels"))
	})

	It("gets no second event about the deletion of its PoolbootConfig if the cache does not show the deletion yet", func(ctx SpecContext) {
		w := newWorld()
		w.settleWithDataSecret(ctx)
		w.receivedEvents()
		w.change(ctx, annotated(poolv1.HostPoolAnnotation, ""))
		w.beforeWrite = func(ctx context.Context) {
			if config := w.config(ctx); config != nil && w.host(ctx).Spec.UserData == nil { // the next write deletes the PoolbootConfig
				Expect(w.Delete(ctx, config)).To(Succeed())
			}
		}
		w.settle(ctx)
		Expect(w.config(ctx)).To(BeNil())
		Expect(w.receivedEvents()).NotTo(ContainSubstring(poolv1.EventPoolbootConfigDeleted), "who deleted it has received")
	})

	DescribeTable("loses its PoolbootConfig",
		func(ctx SpecContext, change func(*bmov1alpha1.BareMetalHost), left *corev1.SecretReference) {
			w := newWorld()
			w.settleWithDataSecret(ctx)
			w.receivedEvents()
			w.change(ctx, change)
			w.settle(ctx)
			Expect(w.config(ctx)).To(BeNil())
			Expect(w.host(ctx).Spec.UserData).To(Equal(left))
			Expect(w.receivedEvents()).To(ContainSubstring(poolv1.EventPoolbootConfigDeleted))
		},
		Entry("when its annotation is removed", annotated(poolv1.HostPoolAnnotation, ""), nil),
		Entry("when its annotation names another Cluster", annotated(poolv1.HostClusterAnnotation, "elsewhere"), own),
		Entry("when a Machine uses it", consumed, nil),
		Entry("when a Machine uses it and gives it other user data", func(h *bmov1alpha1.BareMetalHost) {
			consumed(h)
			h.Spec.UserData = &corev1.SecretReference{Name: "of-the-machine"}
		}, &corev1.SecretReference{Name: "of-the-machine"}),
		Entry("when it is deprovisioned", inState(bmov1alpha1.StateDeprovisioning), own),
	)

	It("loses its PoolbootConfig if it was deprovisioned while no manager ran, and gets another one", func(ctx SpecContext) {
		w := newWorld()
		w.settleWithDataSecret(ctx)
		w.changeConfig(ctx, func(c *bootstrapv1.PoolbootConfig) {
			c.Status.Requests.RequestedTime = &metav1.MicroTime{Time: time.Now()}
			c.Finalizers = nil
		})
		w.settle(ctx)
		Expect(w.config(ctx).Status.Requests.RequestedTime).To(BeNil())
		Expect(w.receivedEvents()).To(ContainSubstring("was deprovisioned"))
	})

	It("loses its PoolbootConfig when it is deleted", func(ctx SpecContext) {
		w := newWorld()
		w.settleWithDataSecret(ctx)
		Expect(w.Delete(ctx, w.host(ctx))).To(Succeed())
		w.settle(ctx)
		Expect(w.config(ctx)).To(BeNil())
	})
})

var _ = Describe("A BareMetalHost without annotations", func() {
	It("is never changed, and neither is a PoolbootConfig with its name that it does not own", func(ctx SpecContext) {
		w := newWorld(func(h *bmov1alpha1.BareMetalHost) { h.Annotations = nil })
		Expect(w.Create(ctx, &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
			Spec: bootstrapv1.PoolbootConfigSpec{Host: bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeEnrollment, NodeName: key.Name, Enrollment: bootstrapv1.EnrolledHost{Name: "edge"}}}})).To(Succeed())
		w.settle(ctx)
		Expect(w.writes).To(BeZero())
		Expect(w.receivedEvents()).To(BeEmpty())
	})
})
