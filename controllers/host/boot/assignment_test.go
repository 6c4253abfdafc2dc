package boot

import (
	"context"
	"errors"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
)

// newOffer returns an agent for two architectures. The hashes have the first digits a and b.
func newOffer() join.Offer {
	return join.Offer{
		ServerURL: "https://boot.example.com:9444",
		Agent: assignment.Agent{Version: "v0.1.0", Oldest: "v0.1.0", SHA512: map[string]string{
			"amd64": strings.Repeat("a", 128), "arm64": strings.Repeat("b", 128),
		}},
	}
}

// newWorldWithAgent returns a world in which hosts get an agent.
func newWorldWithAgent() *world {
	s := newSetting()
	w := s.world()
	w.offered = newOffer()
	return w
}

// agentHash returns the first digit of the hash of the agent in the overlay, or "" if there is none.
func agentHash(ctx context.Context, w *world) string {
	GinkgoHelper()
	config, err := ignition.Parse(unpacked(w.overlays(ctx)[0]))
	Expect(err).NotTo(HaveOccurred())
	for _, file := range config.Storage.Files {
		if file.Path == assignment.ProgramPath {
			Expect(file.Contents.Source).To(HaveValue(HavePrefix("https://boot.example.com:9444/agent/")))
			return strings.TrimPrefix(*file.Contents.Verification.Hash, "sha512-")[:1]
		}
	}
	return ""
}

var _ = Describe("A host for which an agent is offered", func() {
	var s *setting
	BeforeEach(func() {
		s = newSetting()
	})

	It("gets an assignment before it can get its overlay with the agent", func(ctx SpecContext) {
		w := s.world()
		w.offered = newOffer()
		written := map[int]string{}
		w.after = func(n int) error {
			switch {
			case len(w.overlays(ctx)) > 0:
				written[n] = "overlay"
			case len(w.assignments(ctx)) > 0:
				written[n] = "assignment"
			}
			return nil
		}
		Expect(w.sendRequest(ctx)).To(BeZero())
		expectPrepared(ctx, w, machineName)
		Expect(agentHash(ctx, w)).To(Equal("a"))
		Expect(w.overlays(ctx)[0].Annotations).To(HaveKeyWithValue(bootstrapv1.OverlayAgentAnnotation, HavePrefix("aa")))
		Expect(written).To(And(HaveKeyWithValue(writesOfFirstBoot-2, "assignment"), HaveKeyWithValue(writesOfFirstBoot-1, "overlay")))
	})

	It("gets an overlay with the new agent when it requests its configuration again after an upgrade", func(ctx SpecContext) {
		w := s.world()
		w.offered = newOffer()
		Expect(w.sendRequest(ctx)).To(BeZero())
		for architecture := range w.offered.Agent.SHA512 {
			w.offered.Agent.SHA512[architecture] = strings.Repeat("b", 128)
		}
		Expect(w.sendRequest(ctx)).To(BeZero())
		Expect(agentHash(ctx, w)).To(Equal("b"))
		Expect(w.overlays(ctx)[0].Annotations).To(HaveKeyWithValue(bootstrapv1.OverlayAgentAnnotation, HavePrefix("bb")))

		w.offered = join.Offer{}
		Expect(w.sendRequest(ctx)).To(BeZero())
		Expect(w.overlays(ctx)[0].Annotations).NotTo(HaveKey(bootstrapv1.OverlayAgentAnnotation))
	})

	It("gets the assignment for its new rendered config when it requests its configuration again", func(ctx SpecContext) {
		w := s.world()
		w.offered = newOffer()
		Expect(w.sendRequest(ctx)).To(BeZero())
		change(ctx, w.management, s.infra, func(p *poolv1.MachineConfigPool) { p.Status.Configuration.Name = "rendered-edge-infra-2" })
		Expect(w.sendRequest(ctx)).To(BeZero())
		expectAssigned(ctx, w, machineName)
		assigned, err := assignment.Read(w.assignments(ctx)[0].Data[bootstrapv1.AssignmentKey])
		Expect(err).NotTo(HaveOccurred())
		Expect(assigned.Config.Name).To(Equal("rendered-edge-infra-2"))
	})

	It("keeps the rendered config that it can have already, if only its Node was deleted, and its pool renders another one", func(ctx SpecContext) {
		w := s.world()
		w.offered = newOffer()
		Expect(w.sendRequest(ctx)).To(BeZero())
		change(ctx, w.management, s.infra, func(p *poolv1.MachineConfigPool) { p.Status.Configuration.Name = "rendered-edge-infra-2" })
		Expect(w.workload.Delete(ctx, w.node(ctx))).To(Succeed())
		change(ctx, w.management, w.config(ctx), func(c *bootstrapv1.PoolbootConfig) {
			conditions.Set(c, metav1.Condition{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionFalse, Reason: bootstrapv1.NodeMissingReason})
		})
		Expect(w.reconcile(ctx)).To(BeZero())
		Expect(w.node(ctx).Annotations).To(HaveKeyWithValue(poolv1.NodeCurrentConfigAnnotation, "rendered-edge-infra-1"))
		Expect(w.config(ctx).Status.Boot.ServedConfiguration.Name).To(Equal("rendered-edge-infra-1"))
		Expect(w.overlays(ctx)[0].Annotations).To(HaveKeyWithValue(bootstrapv1.OverlayConfigurationAnnotation, "rendered-edge-infra-1"))
		assigned, err := assignment.Read(w.assignments(ctx)[0].Data[bootstrapv1.AssignmentKey])
		Expect(err).NotTo(HaveOccurred())
		Expect(assigned.Config.Name).To(Equal("rendered-edge-infra-1"))
	})

	It("gets nothing while the agent cannot be read", func(ctx SpecContext) {
		w := s.world()
		w.reconciler.Offer = func() (join.Offer, error) { return join.Offer{}, errors.New("no such file") }
		_, err := w.sendRequest(ctx)
		Expect(err).To(MatchError(ContainSubstring("no such file")))
		Expect(w.overlays(ctx)).To(BeEmpty())
	})

	It("can report that it does not join, although no agent is offered", func(ctx SpecContext) {
		w := s.world()
		w.offered = join.Offer{ServerURL: "https://boot.example.com:9444"}
		Expect(w.sendRequest(ctx)).To(BeZero())
		Expect(agentHash(ctx, w)).To(BeEmpty())
		config, err := ignition.Parse(unpacked(w.overlays(ctx)[0]))
		Expect(err).NotTo(HaveOccurred())
		Expect(config.Storage.Files).To(ContainElement(HaveField("Path", "/etc/poolboot/report.conf")))
	})

	It("waits if its rendered config is deleted, and no user must act", func(ctx SpecContext) {
		w := s.world()
		w.offered = newOffer()
		rendered := &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Namespace: s.infra.Namespace, Name: s.infra.Status.Configuration.Name}}
		Expect(w.management.Delete(ctx, rendered)).To(Succeed())
		_, err := w.sendRequest(ctx)
		Expect(err).To(HaveOccurred())
		Expect(conditions.GetReason(w.config(ctx), bootstrapv1.BootPreparedCondition)).To(Equal(bootstrapv1.PoolNotRenderedReason))
		Expect(w.overlays(ctx)).To(BeEmpty())
	})

	It("has neither with an inline data Secret", func(ctx SpecContext) {
		s.inline(time.Now().Add(time.Hour))
		w := s.world()
		w.offered = newOffer()
		_, err := w.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.assignments(ctx)).To(BeEmpty())
	})

	DescribeTable("gets the agent for its architecture", func(ctx SpecContext, prepare func(*setting) []*bmov1alpha1.HardwareData, digit string) {
		data := prepare(s)
		w := s.world()
		for _, d := range data {
			Expect(w.management.Create(ctx, d)).To(Succeed())
		}
		w.offered = newOffer()
		Expect(w.sendRequest(ctx)).To(BeZero())
		Expect(agentHash(ctx, w)).To(Equal(digit))
		Expect(w.assignments(ctx)).To(HaveLen(map[bool]int{true: 1}[digit != ""]))
	},
		Entry("that of the HardwareData, before all others", func(s *setting) []*bmov1alpha1.HardwareData {
			s.host.Spec.Architecture, s.infra.Spec.Hosts.Architecture = "x86_64", poolv1.ArchitectureAMD64
			return []*bmov1alpha1.HardwareData{{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: hostName}, Spec: bmov1alpha1.HardwareDataSpec{
				HardwareDetails: &bmov1alpha1.HardwareDetails{CPU: bmov1alpha1.CPU{Arch: "aarch64"}}}}}
		}, "b"),
		Entry("that of the BareMetalHost's spec, before that of the pool", func(s *setting) []*bmov1alpha1.HardwareData {
			s.host.Spec.Architecture, s.infra.Spec.Hosts.Architecture = "aarch64", poolv1.ArchitectureAMD64
			return nil
		}, "b"),
		Entry("that of the pool", func(s *setting) []*bmov1alpha1.HardwareData {
			s.infra.Spec.Hosts.Architecture = poolv1.ArchitectureARM64
			return nil
		}, "b"),
		Entry("amd64 if there is no other", func(*setting) []*bmov1alpha1.HardwareData { return nil }, "a"),
		Entry("and none if none is offered for it", func(s *setting) []*bmov1alpha1.HardwareData {
			s.host.Spec.Architecture = "ppc64le"
			return nil
		}, ""),
	)
})
