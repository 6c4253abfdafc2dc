package machineconfigpool

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// situations brings the pool infra into a state in which one of its conditions has a reason. If the condition reports a
// problem, its message describes what to do.
var situations = map[string]struct {
	condition string
	bring     func(s *fixture, infra *poolv1.MachineConfig)
	nextStep  string
}{
	poolv1.AllHostsUpdatedReason: {condition: poolv1.UpdatedCondition, bring: func(*fixture, *poolv1.MachineConfig) {}},
	poolv1.AsExpectedReason:      {condition: poolv1.DegradedCondition, bring: func(*fixture, *poolv1.MachineConfig) {}},
	poolv1.RenderedReason:        {condition: poolv1.RenderDegradedCondition, bring: func(*fixture, *poolv1.MachineConfig) {}},
	poolv1.HostsPendingReason: {poolv1.UpdatingCondition, func(s *fixture, _ *poolv1.MachineConfig) {
		Expect(s.Create(ctx(), joined(machine("m1", "infra", "rendered-infra-0", true)))).To(Succeed())
		Expect(s.Create(ctx(), machine("m2", "infra", "", false))).To(Succeed())
	}, `\(m2\): see kubectl poolboot rollout status infra -n site; .*\(m1\): roll out their MachineDeployments to renew them, see docs/pools\.md#renewing-machines`},
	poolv1.HostsUpdatingReason: {poolv1.UpdatingCondition, func(s *fixture, _ *poolv1.MachineConfig) {
		Expect(s.Create(ctx(), follower("m1", bootstrapv1.UpdateRebootingReason))).To(Succeed())
		Expect(s.Create(ctx(), follower("m2", bootstrapv1.UpdateWaitingReason))).To(Succeed())
	}, `1 of 2 hosts are being updated \(m1\): see kubectl poolboot rollout status infra -n site; .*wait for their update \(m2\): see`},
	poolv1.RolloutStoppedReason: {poolv1.UpdatingCondition, func(s *fixture, _ *poolv1.MachineConfig) {
		Expect(s.Create(ctx(), follower("m1", bootstrapv1.UpdateDegradedReason))).To(Succeed())
		Expect(s.Create(ctx(), follower("m2", bootstrapv1.UpdateWaitingReason))).To(Succeed())
	}, `1 of 2 hosts cannot be updated \(m1\): see kubectl poolboot rollout status infra -n site, and correct`},
	poolv1.RolloutBlockedReason: {poolv1.UpdatingCondition, func(s *fixture, _ *poolv1.MachineConfig) {
		onNode := follower("m1", bootstrapv1.UpdateWaitingReason)
		onNode.Status.NodeRef.Name = "node-1"
		Expect(s.Create(ctx(), withProblem(onNode, bootstrapv1.NodeInPoolCondition, bootstrapv1.NodeNotReadyReason, "it is not Ready"))).To(Succeed())
		Expect(s.Create(ctx(), follower("m2", bootstrapv1.UpdateWaitingReason))).To(Succeed())
	}, `no host begins its update while these are unavailable \(node-1\): correct these hosts`},
	poolv1.HostsUnavailableReason: {poolv1.UpdatingCondition, func(s *fixture, _ *poolv1.MachineConfig) {
		Expect(s.Create(ctx(), joined(machine("m1", "infra", s.pool("infra").Status.Configuration.Name, false)))).To(Succeed())
	}, `\(m1\): see kubectl poolboot rollout status infra -n site`},
	poolv1.HostsDegradedReason: {poolv1.NodeDegradedCondition, func(s *fixture, _ *poolv1.MachineConfig) {
		Expect(s.Create(ctx(), withProblem(machine("m1", "infra", "", false), bootstrapv1.BootPreparedCondition, bootstrapv1.NodeNameTakenReason,
			"host m1: it already exists: delete the Node"))).To(Succeed())
	}, `act: m1: it already exists: delete the Node`},
	poolv1.NothingRenderedReason: {poolv1.UpdatedCondition, func(s *fixture, _ *poolv1.MachineConfig) {
		p := s.pool("infra")
		p.Status = poolv1.MachineConfigPoolStatus{}
		Expect(s.Status().Update(ctx(), p)).To(Succeed())
		Expect(s.Delete(ctx(), s.pool("worker"))).To(Succeed())
	}, `see the condition RenderDegraded`},
	poolv1.RolloutPausedReason: {poolv1.UpdatedCondition, func(s *fixture, infra *poolv1.MachineConfig) {
		s.pause(true)
		s.set(infra, "changed")
	}, `run kubectl poolboot rollout resume infra -n \w+ to hand it out`},
	poolv1.ApprovalPendingReason: {poolv1.UpdatedCondition, func(s *fixture, _ *poolv1.MachineConfig) {
		p := s.pool("infra")
		p.Spec.Updates.Approval = poolv1.ApprovalManual
		Expect(s.Update(ctx(), p)).To(Succeed())
		Expect(s.Create(ctx(), follower("m1", bootstrapv1.UpdateWaitingReason))).To(Succeed())
	}, `is not approved .*: check it, and run kubectl poolboot rollout approve infra -n \w+ --configuration rendered-infra-`},
	poolv1.HostsSkippedReason: {poolv1.UpdatedCondition, func(s *fixture, _ *poolv1.MachineConfig) {
		p := s.pool("infra")
		p.Spec.Updates.Exceptions = []poolv1.UpdateException{{Node: "m1", Action: poolv1.ExceptionSkip, Until: &metav1.Time{Time: time.Now().Add(time.Hour)}, Reason: "waits for a disk"}}
		Expect(s.Update(ctx(), p)).To(Succeed())
		m1 := follower("m1", bootstrapv1.UpdateWaitingReason)
		m1.Status.NodeRef = bootstrapv1.NodeReference{Name: "m1", UID: "m1"}
		Expect(s.Create(ctx(), m1)).To(Succeed())
	}, `1 of 1 hosts are skipped \(m1 until .*: waits for a disk\): wait until then, or remove the entry`},
	poolv1.PausedConfigurationInvalidReason: {poolv1.RenderDegradedCondition, func(s *fixture, _ *poolv1.MachineConfig) {
		p := s.pool("infra")
		p.Spec.Paused = new(true)
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, poolv1.PausedConfigurationAnnotation, "rendered-infra-0")
		Expect(s.Update(ctx(), p)).To(Succeed())
	}, `annotation poolboot.io/paused-configuration: MachineConfig rendered-infra-0 does not exist: apply it from a backup, run kubectl poolboot rollout pause infra -n`},
	poolv1.PinnedConfigurationInvalidReason: {poolv1.RenderDegradedCondition, func(s *fixture, _ *poolv1.MachineConfig) {
		p := s.pool("infra")
		p.Spec.ConfigurationName = "rendered-infra-0"
		Expect(s.Update(ctx(), p)).To(Succeed())
	}, `spec.configurationName: MachineConfig rendered-infra-0 does not exist: apply it from a backup, run kubectl poolboot rollout undo infra -n`},
	poolv1.RenderFailedReason: {poolv1.RenderDegradedCondition, func(s *fixture, infra *poolv1.MachineConfig) {
		infra.Spec.Config.Raw = []byte(`{"ignition":{"version":"9.0.0"}}`)
		Expect(s.Update(ctx(), infra)).To(Succeed())
	}, `50-infra.*ignition\.version.*correct this`},
	poolv1.ClusterNotFoundReason: {poolv1.DegradedCondition, func(s *fixture, _ *poolv1.MachineConfig) {
		Expect(s.Delete(ctx(), cluster())).To(Succeed())
	}, `: create it, or`},
	poolv1.WorkerPoolMissingReason: {poolv1.DegradedCondition, func(s *fixture, _ *poolv1.MachineConfig) {
		Expect(s.Delete(ctx(), s.pool("worker"))).To(Succeed())
	}, `: create it`},
	poolv1.DuplicateRoleReason: {poolv1.DegradedCondition, func(s *fixture, _ *poolv1.MachineConfig) {
		Expect(s.Create(ctx(), newPool("infra-0", "infra", 3*time.Hour))).To(Succeed())
	}, `infra and infra-0 all have the role "infra": delete all but one`},
}

// reasons returns all reasons that the API defines for pools, by the names of their constants.
func reasons() map[string]string {
	file, err := parser.ParseFile(token.NewFileSet(), "../../api/pool/v1alpha1/constants.go", nil, parser.ParseComments)
	if err != nil {
		panic(err)
	}
	named := map[string]string{}
	for _, declaration := range file.Decls {
		block, ok := declaration.(*ast.GenDecl)
		if !ok || !strings.HasPrefix(block.Doc.Text(), "Reasons of the conditions of a MachineConfigPool.") {
			continue
		}
		for _, spec := range block.Specs {
			constant := spec.(*ast.ValueSpec)
			named[constant.Names[0].Name], _ = strconv.Unquote(constant.Values[0].(*ast.BasicLit).Value)
		}
	}
	return named
}

// good returns the status that a condition has if there is no problem.
func good(conditionType string) metav1.ConditionStatus {
	if conditionType == poolv1.UpdatedCondition || conditionType == poolv1.ReadyCondition {
		return yes
	}
	return no
}

var _ = Describe("The conditions of a pool", func() {
	var (
		infra *poolv1.MachineConfig
		s     *fixture
	)
	BeforeEach(func() {
		infra = config("50-infra", "infra", "0")
		s = newFixture(cluster(), newPool("worker", "worker", 2*time.Hour), newPool("infra", "infra", time.Hour), infra)
		s.reconcile("infra")
	})

	for name, reason := range reasons() {
		It("with "+name+" give the cause, and what to do about a problem", func() {
			situation, ok := situations[reason]
			Expect(ok).To(BeTrue(), "no situation has this reason")
			situation.bring(s, infra)
			p := s.reconcile("infra")
			Expect(p.Status.ObservedGeneration).To(Equal(p.Generation))

			var kinds []string
			for _, c := range p.Status.Conditions {
				if c.Type == clusterv1.PausedCondition {
					continue // it belongs to Cluster API
				}
				if c.Type == poolv1.PinnedCondition { // it exists with the field only
					Expect(p.Spec.ConfigurationName).NotTo(BeEmpty())
					continue
				}
				if c.Type == poolv1.StalledCondition {
					Expect(p).To(haveCondition(poolv1.DegradedCondition, yes, c.Reason))
					continue
				}
				kinds = append(kinds, c.Type)
				Expect(c.Reason).NotTo(BeEmpty(), c.Type)
				Expect(c.Message).NotTo(BeEmpty(), c.Type)
				Expect(c.ObservedGeneration).To(Equal(p.Generation), c.Type)
				if c.Type == situation.condition {
					Expect(c.Reason).To(Equal(reason))
					Expect(c.Message).To(MatchRegexp(situation.nextStep))
					Expect(c.Status == good(c.Type)).To(Equal(situation.nextStep == ""))
				} else if c.Status != good(c.Type) {
					Expect(nextSteps.MatchString(c.Message)).To(BeTrue(), "%s: %s", c.Type, c.Message)
				}
			}
			Expect(kinds).To(ConsistOf(poolv1.ReadyCondition, poolv1.UpdatedCondition, poolv1.UpdatingCondition, poolv1.DegradedCondition,
				poolv1.RenderDegradedCondition, poolv1.NodeDegradedCondition))
		})
	}

	It("have exactly the reasons that are tested here", func() {
		Expect(slices.Sorted(maps.Values(reasons()))).To(Equal(slices.Sorted(maps.Keys(situations))))
	})

	It("count the Machines that are recorded in the pool, as OpenShift does", func() {
		name := s.pool("infra").Status.Configuration.Name
		for _, m := range []client.Object{
			joined(machine("ready", "infra", name, true)),
			joined(machine("not-ready", "infra", name, false)),
			machine("on-its-way", "infra", name, false),
			machine("not-booted", "infra", "", false),
			joined(machine("outdated", "infra", "rendered-infra-0", true)),
			withProblem(joined(machine("relabeled", "infra", name, false)), bootstrapv1.NodeInPoolCondition, bootstrapv1.NodeOutsidePoolReason, "put labels on it"),
			withProblem(joined(machine("gone", "infra", "rendered-infra-0", false)), bootstrapv1.NodeInPoolCondition, bootstrapv1.NodeMissingReason, "restart it"),
			machine("other", "worker", name, true),
		} {
			Expect(s.Create(ctx(), m)).To(Succeed())
		}
		p := s.reconcile("infra")
		Expect(p.Status.HostCount).To(HaveValue(BeEquivalentTo(7)))
		Expect(p.Status.UpdatedHostCount).To(HaveValue(BeEquivalentTo(3)))
		Expect(p.Status.ReadyHostCount).To(HaveValue(BeEquivalentTo(1)))
		Expect(p.Status.UnavailableHostCount).To(HaveValue(BeEquivalentTo(5)))
		Expect(p.Status.DegradedHostCount).To(HaveValue(BeEquivalentTo(2)))
		Expect(p).To(haveCondition(poolv1.UpdatedCondition, no, poolv1.HostsPendingReason, "2 of 7 hosts have not joined yet (not-booted, on-its-way)",
			"2 of 7 hosts run another configuration (gone, outdated): roll out", "3 of 7 hosts have no Node that is Ready in the pool (gone, not-ready, relabeled)"))
		Expect(p).To(haveCondition(poolv1.UpdatingCondition, yes, poolv1.HostsPendingReason))
		Expect(p).To(haveCondition(poolv1.NodeDegradedCondition, yes, poolv1.HostsDegradedReason, "2 of 7 hosts need a user to act: gone: restart it. For the others, see kubectl poolboot rollout status infra -n site"))
		Expect(p).To(haveCondition(poolv1.DegradedCondition, yes, poolv1.HostsDegradedReason, "gone: restart it"))
		Expect(p).To(haveCondition(poolv1.ReadyCondition, no, poolv1.HostsDegradedReason, "gone: restart it"))
		Expect(p).To(haveCondition(poolv1.RenderDegradedCondition, no, poolv1.RenderedReason))
	})

	It("are Ready while the pool is Updated and not Degraded, and say otherwise what it waits for", func() {
		p := s.reconcile("infra")
		Expect(p).To(haveCondition(poolv1.ReadyCondition, yes, poolv1.AllHostsUpdatedReason))
		Expect(p.Status.ObservedGeneration).To(Equal(p.Generation))
		Expect(s.Create(ctx(), machine("boots", "infra", "", false))).To(Succeed())
		Expect(s.reconcile("infra")).To(haveCondition(poolv1.ReadyCondition, no, poolv1.HostsPendingReason, "(boots)"))
	})

	It("are degraded by a host whose units fail", func() {
		for name, reason := range map[string]string{"m1": bootstrapv1.UnitsFailingReason, "m2": bootstrapv1.UpdateRebootingReason} {
			Expect(s.Create(ctx(), follower(name, reason))).To(Succeed())
		}
		p := s.reconcile("infra")
		Expect(p.Status.DegradedHostCount).To(HaveValue(BeEquivalentTo(1)))
		Expect(p).To(haveCondition(poolv1.DegradedCondition, yes, poolv1.HostsDegradedReason, "m1: "))
		Expect(p).To(haveCondition(poolv1.UpdatingCondition, yes, poolv1.HostsUpdatingReason, "(m2)"))
	})

	It("distinguish outdated hosts without a Machine, because no MachineDeployment renews them", func() {
		for _, name := range []string{"edge-7", "infra-x7k2m"} {
			Expect(s.Create(ctx(), joined(machine(name, "infra", "rendered-infra-0", true)))).To(Succeed())
		}
		enrolled := &bootstrapv1.PoolbootConfig{}
		Expect(s.Get(ctx(), client.ObjectKeyFromObject(machine("edge-7", "infra", "", true)), enrolled)).To(Succeed())
		enrolled.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeEnrollment, NodeName: "edge-7", Enrollment: bootstrapv1.EnrolledHost{Name: "edge"}}
		Expect(s.Update(ctx(), enrolled)).To(Succeed())
		Expect(s.reconcile("infra")).To(haveCondition(poolv1.UpdatedCondition, no, poolv1.HostsPendingReason,
			"1 of 2 hosts run another configuration (infra-x7k2m): roll out their MachineDeployments",
			"1 of 2 hosts run another configuration, and no MachineDeployment renews them (edge-7): install these hosts again"))
	})

	It("distinguish outdated hosts that follow the pool, because nobody has to install them again", func() {
		follows := joined(machine("edge-7", "infra", "rendered-infra-0", true))
		follows.Status.Update.DesiredRevision = strings.Repeat("0", 64)
		Expect(s.Create(ctx(), follows)).To(Succeed())
		Expect(s.reconcile("infra")).To(haveCondition(poolv1.UpdatedCondition, no, poolv1.HostsPendingReason,
			"1 of 1 hosts wait for their update (edge-7): see kubectl poolboot rollout status infra -n site"))
	})

	It("do not wait for BareMetalHosts on which nothing is being installed, but name them", func() {
		free := machine("rack1-u12", "infra", "", false)
		free.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeBareMetalHost, NodeName: free.Name, BareMetalHostName: free.Name}
		Expect(s.Create(ctx(), free)).To(Succeed())
		p := s.reconcile("infra")
		Expect(p.Status.HostCount).To(HaveValue(BeZero()))
		Expect(p).To(haveCondition(poolv1.UpdatedCondition, yes, poolv1.AllHostsUpdatedReason, "1 BareMetalHost(s) wait for spec.image", "rack1-u12"))
		Expect(p).To(haveCondition(poolv1.UpdatingCondition, no, poolv1.AllHostsUpdatedReason))

		By("recording the host when its installation starts")
		before := free.DeepCopy()
		free.Status.HostRef = bootstrapv1.HostReference{Name: free.Name, UID: "host-uid"}
		Expect(countsDiffer(event.UpdateEvent{ObjectOld: before, ObjectNew: free})).To(BeTrue())
		Expect(s.Status().Update(ctx(), free)).To(Succeed())
		p = s.reconcile("infra")
		Expect(p.Status.HostCount).To(HaveValue(BeEquivalentTo(1)))
		Expect(p).To(haveCondition(poolv1.UpdatingCondition, yes, poolv1.HostsPendingReason, "rack1-u12"))
	})

	It("of a paused pool count against what waits, and it is never Updating", func() {
		name := s.pool("infra").Status.Configuration.Name
		Expect(s.Create(ctx(), joined(machine("m1", "infra", name, true)))).To(Succeed())
		s.pause(true)
		p := s.reconcile("infra")
		Expect(p).To(haveCondition(poolv1.UpdatedCondition, yes, poolv1.AllHostsUpdatedReason))
		Expect(p.Status.UpdatedHostCount).To(HaveValue(BeEquivalentTo(1)))

		s.set(infra, "waits")
		p = s.reconcile("infra")
		Expect(p.Status.Configuration.Name).To(Equal(name))
		Expect(p.Status.UpdatedHostCount).To(HaveValue(BeEquivalentTo(0)))
		Expect(p.Status.ReadyHostCount).To(HaveValue(BeEquivalentTo(0)))
		Expect(p).To(haveCondition(poolv1.UpdatingCondition, no, poolv1.RolloutPausedReason))

		s.set(infra, "0")
		Expect(s.Create(ctx(), machine("m2", "infra", "", false))).To(Succeed())
		p = s.reconcile("infra")
		Expect(p).To(haveCondition(poolv1.UpdatedCondition, no, poolv1.HostsPendingReason))
		Expect(p).To(haveCondition(poolv1.UpdatingCondition, no, poolv1.HostsPendingReason))
	})

	It("name both the reason why the pool is not rendered and what its Machines wait for", func() {
		Expect(s.Create(ctx(), withProblem(machine("m1", "infra", "", false), bootstrapv1.BootPreparedCondition, bootstrapv1.LabelConflictReason, "make them agree"))).To(Succeed())
		Expect(s.Delete(ctx(), s.pool("worker"))).To(Succeed())
		Expect(s.reconcile("infra")).To(haveCondition(poolv1.DegradedCondition, yes, poolv1.WorkerPoolMissingReason, "create it", "m1: make them agree"))
	})

	DescribeTable("are degraded by a Machine that needs a user to act", func(kind, reason string) {
		Expect(s.Create(ctx(), withProblem(machine("m1", "infra", "", false), kind, reason, "act"))).To(Succeed())
		Expect(s.reconcile("infra")).To(haveCondition(poolv1.NodeDegradedCondition, yes, poolv1.HostsDegradedReason, "m1: act"))
	},
		Entry("for a fact of its host", bootstrapv1.BootPreparedCondition, bootstrapv1.HostFactMissingReason),
		Entry("for a valid label", bootstrapv1.BootPreparedCondition, bootstrapv1.NodeLabelRuleInvalidReason),
		Entry("for a token", bootstrapv1.TokenUsableCondition, bootstrapv1.TokenExpiredReason),
		Entry("for its data Secret", bootstrapv1.DataSecretAvailableCondition, bootstrapv1.DataSecretFailedReason),
	)

	It("ignore an earlier problem with the boot of a Machine that has joined", func() {
		m := withProblem(joined(machine("m1", "infra", "", true)), bootstrapv1.BootPreparedCondition, bootstrapv1.BootFailedReason, "boom")
		Expect(s.Create(ctx(), m)).To(Succeed())
		Expect(s.reconcile("infra").Status.DegradedHostCount).To(HaveValue(BeEquivalentTo(0)))
	})

	It("name five Machines and count the others", func() {
		for _, name := range strings.Fields("a b c d e f g") {
			Expect(s.Create(ctx(), machine(name, "infra", "", false))).To(Succeed())
		}
		Expect(s.reconcile("infra")).To(haveCondition(poolv1.UpdatedCondition, no, poolv1.HostsPendingReason, "(a, b, c, d, e and 2 more)"))
	})
})

// nextSteps matches the words in a message that separate the problem from what to do.
var nextSteps = regexp.MustCompile(`(: |, |; )(see|set|create|delete|roll out|run|wait|correct|give|put)\b`)
