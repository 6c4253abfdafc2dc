package boot

import (
	"context"
	"fmt"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/scrape"
)

const otherHost = "rack2-u07"

var _ = Describe("The deployment of a host", func() {
	var (
		s *setting
		w *world
	)
	BeforeEach(func() { s = newSetting() })

	condition := func(ctx context.Context) *metav1.Condition {
		GinkgoHelper()
		return conditions.Get(w.config(ctx), bootstrapv1.BootPreparedCondition)
	}
	bmh := func(ctx context.Context) *bmov1alpha1.BareMetalHost {
		GinkgoHelper()
		h := &bmov1alpha1.BareMetalHost{}
		Expect(w.management.Get(ctx, client.ObjectKeyFromObject(s.host), h)).To(Succeed())
		return h
	}
	// hostIs changes the host as Metal3 does, and reconciles, as the watch on hosts triggers it.
	hostIs := func(ctx context.Context, do func(*bmov1alpha1.BareMetalHost)) {
		GinkgoHelper()
		change(ctx, w.management, bmh(ctx), do)
		Expect(w.reconcile(ctx)).To(BeZero())
	}
	inState := func(state bmov1alpha1.ProvisioningState) func(*bmov1alpha1.BareMetalHost) {
		return func(h *bmov1alpha1.BareMetalHost) { h.Status.Provisioning.State = state }
	}
	served := func(ctx context.Context) {
		GinkgoHelper()
		w = s.world()
		Expect(w.sendRequest(ctx)).To(BeZero())
		change(ctx, w.management, w.config(ctx), func(c *bootstrapv1.PoolbootConfig) {
			c.Status.Requests.ServedTime = microTime(time.Now())
			c.Status.Requests.Addresses = []bootstrapv1.TokenAddress{{Address: "192.0.2.7", FirstUsedTime: *microTime(time.Now())}}
			c.Status.Requests.IgnitionFailure = bootstrapv1.IgnitionFailure{ReportedTime: *microTime(time.Now()), Stage: "files"}
		})
	}
	// moveTo gives the Machine another host, as Metal3 does when it chooses again.
	moveTo := func(ctx context.Context, name string) {
		GinkgoHelper()
		other := s.host.DeepCopy()
		other.Name, other.UID, other.ResourceVersion = name, "uid-of-the-other-host", ""
		Expect(w.management.Create(ctx, other)).To(Succeed())
		s.metal3Machine.SetAnnotations(map[string]string{host.Annotation: namespace + "/" + name})
		Expect(w.management.Update(ctx, s.metal3Machine)).To(Succeed())
	}

	Describe("of a live ISO, which gets no user data,", func() {
		BeforeEach(func() {
			s.host.Status.Provisioning.State = bmov1alpha1.StateProvisioning
			s.host.Spec.Image = &bmov1alpha1.Image{URL: "http://images/live.iso", DiskFormat: ptr.To("live-iso")}
		})

		It("is reported immediately, with host, field and remedy, because such a host never sends a request", func(ctx SpecContext) {
			w = s.world()
			Expect(w.reconcile(ctx)).To(BeZero())
			expectNotPrepared(ctx, w, bootstrapv1.HostImageIgnoresUserDataReason, "BareMetalHost "+hostName, "spec.image.format", "Metal3MachineTemplate")
			written := w.writes
			Expect(w.reconcile(ctx)).To(BeZero())
			Expect(w.writes).To(Equal(written), "once")
			Expect(w.newEvents()).To(BeEmpty())
		})

		It("is reported even if the host is chosen after everything else was checked", func(ctx SpecContext) {
			s.metal3Machine.SetAnnotations(nil)
			w = s.world()
			Expect(w.reconcile(ctx)).To(BeZero())
			Expect(conditions.Has(w.config(ctx), bootstrapv1.BootPreparedCondition)).To(BeFalse(), "no host is chosen")
			s.metal3Machine.SetAnnotations(map[string]string{host.Annotation: namespace + "/" + hostName})
			Expect(w.management.Update(ctx, s.metal3Machine)).To(Succeed())
			Expect(w.reconcile(ctx)).To(BeZero())
			Expect(condition(ctx)).To(HaveField("Reason", bootstrapv1.HostImageIgnoresUserDataReason))
		})

		It("is no longer reported when the host gets a disk image", func(ctx SpecContext) {
			w = s.world()
			Expect(w.reconcile(ctx)).To(BeZero())
			hostIs(ctx, func(h *bmov1alpha1.BareMetalHost) { h.Spec.Image.DiskFormat = ptr.To("qcow2") })
			Expect(condition(ctx)).To(And(HaveField("Status", metav1.ConditionUnknown), HaveField("Reason", bootstrapv1.WaitingForRequestReason)))
		})

		It("does not matter if the host sends a request anyway, because its image contains the pointer", func(ctx SpecContext) {
			w = s.world()
			Expect(w.sendRequest(ctx)).To(BeZero())
			expectPrepared(ctx, w, machineName)
		})

		It("is reported for a host that boots from its data Secret", func(ctx SpecContext) {
			s.inline(time.Now().Add(join.Lifetime))
			w = s.world()
			_, err := w.reconcile(ctx)
			Expect(err).To(MatchError(ContainSubstring("live-iso")))
			Expect(condition(ctx)).To(HaveField("Reason", bootstrapv1.HostImageIgnoresUserDataReason))
			Expect(w.nodes(ctx)).To(BeEmpty())
		})
	})

	Describe("that Metal3 can't complete", func() {
		BeforeEach(func() { s.host.Status.Provisioning.State = bmov1alpha1.StateProvisioning })
		message := func(ctx context.Context) string {
			GinkgoHelper()
			Expect(condition(ctx)).To(And(HaveField("Status", metav1.ConditionUnknown), HaveField("Reason", bootstrapv1.WaitingForRequestReason)))
			return condition(ctx).Message
		}

		It("is reported with the error of Metal3, which tries again", func(ctx SpecContext) {
			w = s.world()
			hostIs(ctx, func(h *bmov1alpha1.BareMetalHost) {
				h.Status.ErrorType, h.Status.ErrorMessage, h.Status.ErrorCount = bmov1alpha1.ProvisioningError, "Image provisioning failed:\n checksum mismatch", 2
			})
			Expect(message(ctx)).To(And(HavePrefix("host "+hostName+" was chosen and has not requested its configuration from https://boot.example.com:9444 yet: "),
				ContainSubstring("BareMetalHost "+namespace+"/"+hostName+" is provisioning and has a provisioning error: Image provisioning failed: checksum mismatch")))
			hostIs(ctx, func(h *bmov1alpha1.BareMetalHost) {
				h.Status.Provisioning.State, h.Status.ErrorType, h.Status.ErrorMessage = bmov1alpha1.StateDeprovisioning, "", ""
			})
			Expect(message(ctx)).To(ContainSubstring("is deprovisioning after 2 failed attempts"))
			hostIs(ctx, func(h *bmov1alpha1.BareMetalHost) {
				h.Status.Provisioning.State, h.Status.ErrorCount = bmov1alpha1.StateProvisioning, 0
			})
			const check = "configuration from https://boot.example.com:9444 yet: when it boots its image, check on its console that the image starts with the firmware " +
				"in the boot mode %s (spec.bootMode of the BareMetalHost), and that it can connect to this URL"
			Expect(message(ctx)).To(HaveSuffix(fmt.Sprintf(check, "UEFI")))
			hostIs(ctx, func(h *bmov1alpha1.BareMetalHost) { h.Status.Provisioning.BootMode = bmov1alpha1.Legacy })
			Expect(message(ctx)).To(HaveSuffix(fmt.Sprintf(check, "legacy")))
		})

		It("is reported with the Secrets that Metal3 waits for and that do not exist, as those of a deleted Machine, and looked at again", func(ctx SpecContext) {
			s.host.Spec.UserData = &corev1.SecretReference{Name: machineName, Namespace: namespace}
			s.host.Spec.NetworkData = &corev1.SecretReference{Name: "gone-networkdata", Namespace: namespace}
			s.host.Spec.MetaData = &corev1.SecretReference{Name: "there"}
			w = s.world(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "there"}})
			Expect(w.reconcile(ctx)).To(HaveField("RequeueAfter", BeNumerically(">", 0)))
			Expect(message(ctx)).To(And(
				ContainSubstring("spec.networkData of BareMetalHost "+namespace+"/"+hostName+" is Secret gone-networkdata, which does not exist: create the Secret, or remove spec.networkData"),
				Not(ContainSubstring("metaData")), Not(ContainSubstring("userData")))) // the condition DataSecretAvailable reports the own one
		})

		It("is reported with the Secret of the network data that Metal3 falls back to", func(ctx SpecContext) {
			s.host.Spec.PreprovisioningNetworkDataName = "rack1-network"
			w = s.world()
			Expect(w.reconcile(ctx)).To(HaveField("RequeueAfter", BeNumerically(">", 0)))
			Expect(message(ctx)).To(ContainSubstring("spec.preprovisioningNetworkDataName of BareMetalHost " + namespace + "/" + hostName + " is Secret rack1-network, which does not exist"))
		})

		It("costs no request if Metal3 needs only the data Secret", func(ctx SpecContext) {
			s.host.Spec.UserData = &corev1.SecretReference{Name: machineName, Namespace: namespace}
			w = s.world()
			Expect(w.reconcile(ctx)).To(BeZero())
			Expect(w.liveReads).To(BeZero())
		})
	})

	It("that is in another namespace is reported, because it would never request its configuration", func(ctx SpecContext) {
		s.metal3Machine.SetAnnotations(map[string]string{host.Annotation: "hosts/rack2-u1"})
		w = s.world()
		Expect(w.reconcile(ctx)).To(BeZero())
		expectNotPrepared(ctx, w, bootstrapv1.HostNotUsableReason, "hosts/rack2-u1", "in another namespace", "register the host there")
		s.metal3Machine.SetAnnotations(map[string]string{host.Annotation: namespace + "/" + hostName})
		Expect(w.management.Update(ctx, s.metal3Machine)).To(Succeed())
		Expect(w.reconcile(ctx)).To(BeZero())
		Expect(condition(ctx)).To(HaveField("Reason", bootstrapv1.WaitingForRequestReason))
	})

	DescribeTable("that is withdrawn before the Node is Ready leaves nothing that the host could join with,",
		func(ctx SpecContext, do func(ctx context.Context)) {
			served(ctx)
			do(ctx)
			Expect(w.reconcile(ctx)).To(BeZero())
			Expect(w.credentials(ctx)).To(BeEmpty())
			Expect(w.overlays(ctx)).To(BeEmpty())
			Expect(w.nodes(ctx)).To(BeEmpty())
			Expect(condition(ctx)).To(And(HaveField("Status", metav1.ConditionUnknown), HaveField("Reason", bootstrapv1.WaitingForHostReason)))
			Expect(conditions.Has(w.config(ctx), bootstrapv1.NodeInPoolCondition)).To(BeFalse(), "there is no Node to report")
			Expect(w.config(ctx).Status).To(And(HaveField("NodeRef", BeZero()), HaveField("HostRef", BeZero()), HaveField("Boot.CredentialID", ""),
				HaveField("Requests.Addresses", BeEmpty()), HaveField("Requests.IgnitionFailure", BeZero()))) // the next host has others
			stage, since := record.StageOf(w.config(ctx))
			Expect(stage).To(Equal(record.StageWaitingForHost))
			Expect(since).To(BeTemporally("~", time.Now(), time.Minute))
			Expect(w.newEvents()).To(ContainElement(ContainSubstring("Normal " + bootstrapv1.EventBootWithdrawn)))
		},
		Entry("when the host is deprovisioned", func(ctx context.Context) {
			change(ctx, w.management, bmh(ctx), inState(bmov1alpha1.StateDeprovisioning))
		}),
		Entry("when the host was deprovisioned while the manager was down", func(ctx context.Context) {
			change(ctx, w.management, bmh(ctx), inState(bmov1alpha1.StateAvailable))
		}),
		Entry("when the host is released", func(ctx context.Context) {
			change(ctx, w.management, bmh(ctx), func(h *bmov1alpha1.BareMetalHost) { h.Spec.ConsumerRef = nil })
		}),
		Entry("when the host is deleted", func(ctx context.Context) { Expect(w.management.Delete(ctx, s.host)).To(Succeed()) }),
		Entry("when another host replaces it", func(ctx context.Context) { moveTo(ctx, otherHost) }),
		Entry("even before the host has fetched its configuration", func(ctx context.Context) {
			change(ctx, w.management, w.config(ctx), func(c *bootstrapv1.PoolbootConfig) { c.Status.Requests.ServedTime = nil })
			change(ctx, w.management, bmh(ctx), inState(bmov1alpha1.StateDeprovisioning))
		}),
	)

	It("is timed from the first request of the host that boots, not of an earlier host that was blocked", func(ctx SpecContext) {
		configuration := s.infra.Status.Configuration
		s.infra.Status.Configuration = poolv1.PoolConfiguration{}
		w = s.world()
		sendRequest := func() bootstrapv1.HostRequests {
			_, err := w.sendRequest(ctx)
			Expect(err).To(HaveOccurred())
			return w.config(ctx).Status.Requests
		}
		first := sendRequest()
		Expect(sendRequest().FirstRequestedTime).To(Equal(first.FirstRequestedTime))
		moveTo(ctx, otherHost)
		second := sendRequest()
		Expect(second.FirstRequestedTime).To(Equal(second.RequestedTime))
		Expect(w.config(ctx).Status.Boot.HostChosenTime).To(Equal(second.RequestedTime))
		third := sendRequest()
		Expect(third.FirstRequestedTime).To(Equal(second.FirstRequestedTime))
		Expect(third.RequestedTime.After(second.RequestedTime.Time)).To(BeTrue())
		change(ctx, w.management, s.infra, func(p *poolv1.MachineConfigPool) { p.Status.Configuration = configuration })
		timed := scrape.Observed(metrics.Registry, "poolboot_boot_prepare_seconds", nil)
		change(ctx, w.management, w.config(ctx), func(c *bootstrapv1.PoolbootConfig) {
			c.Status.Requests.FirstRequestedTime = microTime(time.Now().Add(-time.Hour))
		})
		Expect(w.reconcile(ctx)).To(BeZero())
		Expect(scrape.Observed(metrics.Registry, "poolboot_boot_prepare_seconds", nil)-timed).To(BeNumerically("~", time.Hour.Seconds(), 60), "since the first request")
	})

	It("that is withdrawn leaves no credential, whichever write fails, and the next deployment gets the only one", func(ctx SpecContext) {
		for n := 1; n <= 5; n++ {
			served(ctx)
			change(ctx, w.management, bmh(ctx), inState(bmov1alpha1.StateDeprovisioning))
			w.restart()
			refused := false
			w.before = func(write int) error {
				if refused = refused || write == n; write == n {
					return errRefused
				}
				return nil
			}
			_, err := w.reconcile(ctx)
			Expect(refused).To(BeTrue())
			w.restart()
			_, again := w.reconcile(ctx)
			Expect(again).NotTo(HaveOccurred(), "after %v", err)
			Expect(w.credentials(ctx)).To(BeEmpty())
			change(ctx, w.management, bmh(ctx), inState(bmov1alpha1.StateProvisioned))
			Expect(w.sendRequest(ctx)).To(BeZero())
			expectPrepared(ctx, w, machineName)
			s = newSetting()
		}
	})

	It("that is withdrawn is recorded before its Node is deleted, so the Node is not reported as missing", func(ctx SpecContext) {
		served(ctx)
		change(ctx, w.management, bmh(ctx), inState(bmov1alpha1.StateDeprovisioning))
		w.before = func(int) error {
			if len(w.nodes(ctx)) == 0 {
				Expect(condition(ctx)).To(And(HaveField("Status", metav1.ConditionUnknown), HaveField("Reason", bootstrapv1.WaitingForHostReason)))
			}
			return nil
		}
		Expect(w.reconcile(ctx)).To(BeZero())
		Expect(w.nodes(ctx)).To(BeEmpty())
	})

	It("that is repeated gets another credential with the same token, and another Node", func(ctx SpecContext) {
		served(ctx)
		before, node := w.config(ctx).Status.Boot.CredentialID, w.node(ctx).UID
		hostIs(ctx, inState(bmov1alpha1.StateDeprovisioning))
		hostIs(ctx, inState(bmov1alpha1.StateProvisioned))
		Expect(w.credentials(ctx)).To(BeEmpty(), "none before its request")
		Expect(w.sendRequest(ctx)).To(BeZero())
		expectPrepared(ctx, w, machineName)
		Expect(w.config(ctx).Status.Boot.CredentialID).NotTo(Equal(before))
		Expect(w.node(ctx).UID).NotTo(Equal(node))
	})

	It("that is withdrawn keeps a Node that a kubelet has adopted", func(ctx SpecContext) {
		served(ctx)
		change(ctx, w.workload, w.node(ctx), func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.36.3" })
		hostIs(ctx, inState(bmov1alpha1.StateDeprovisioning))
		Expect(w.credentials(ctx)).To(BeEmpty())
		Expect(w.config(ctx).Status.NodeRef.UID).To(Equal(string(w.node(ctx).UID)))
	})

	It("that continues takes no writes", func(ctx SpecContext) {
		served(ctx)
		written := w.writes
		result, err := w.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(BeNumerically("~", join.Lifetime/2, 10*time.Second), "the next renewal")
		Expect(w.writes).To(Equal(written))
	})

	It("that is being removed gives nothing to what still runs on the host, and the next one gets everything", func(ctx SpecContext) {
		s.host.Status.Provisioning.State = bmov1alpha1.StateDeprovisioning
		w = s.world()
		Expect(w.sendRequest(ctx)).To(BeZero())
		expectNotPrepared(ctx, w, bootstrapv1.HostNotReadyReason, "BareMetalHost "+hostName+" is deprovisioning")
		hostIs(ctx, inState(bmov1alpha1.StateProvisioned))
		expectPrepared(ctx, w, machineName)
	})

	DescribeTable("on another host has its own Node and the only credential, even if the change of hosts was never seen,",
		func(ctx SpecContext, kubelet string) {
			if kubelet == "inline" {
				s.inline(time.Now().Add(join.Lifetime))
				w = s.world(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-abcdef"}})
				_, err := w.reconcile(ctx)
				Expect(err).NotTo(HaveOccurred())
			} else {
				served(ctx)
			}
			before := w.config(ctx).Status.Boot.CredentialID
			moveTo(ctx, otherHost)
			_, err := w.sendRequest(ctx)
			Expect(err).NotTo(HaveOccurred())
			n := w.node(ctx)
			Expect(n.Spec.ProviderID).To(Equal("metal3://" + namespace + "/" + otherHost + "/" + machineName))
			Expect(n.Labels).To(HaveKeyWithValue(poolv1.NodeMetal3UUIDLabel, "uid-of-the-other-host"))
			config := w.config(ctx)
			Expect(config.Status.NodeRef.UID).To(Equal(string(n.UID)))
			Expect(config.Status.HostRef.Name).To(Equal(otherHost))
			Expect(config.Status.Requests.Addresses).To(BeEmpty(), "they were the other host's")
			if kubelet == "inline" {
				return
			}
			Expect(w.credentials(ctx)).To(HaveLen(1))
			Expect(config.Status.Boot.CredentialID).NotTo(Equal(before))
			Expect(fileIn(unpacked(w.overlays(ctx)[0]), "/etc/poolboot/kubelet.env")).To(ContainSubstring("/" + otherHost + "/"))
		},
		Entry("from the config server", "server"),
		Entry("from its data Secret", "inline"),
	)
})
