package machineconfigpool

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

var _ = Describe("The prediction of a pool", func() {
	var (
		s     *fixture
		infra *poolv1.MachineConfig
		first string
	)
	BeforeEach(func() {
		infra = config("50-infra", "infra", "0")
		s = newFixture(cluster(), newPool("worker", "worker", 2), newPool("infra", "infra", 1), infra)
		first = s.reconcile("infra").Status.Configuration.Name
		Expect(s.Get(ctx(), client.ObjectKeyFromObject(infra), infra)).To(Succeed())
	})
	// runs creates a running host of infra with a rendered config.
	runs := func(name, configuration string) {
		GinkgoHelper()
		c := follower(name, bootstrapv1.UpdateWaitingReason)
		c.Status.Boot.ServedConfiguration.Name = configuration
		Expect(s.Create(ctx(), c)).To(Succeed())
	}
	// change renders another config with these MachineConfigs.
	change := func(document string) *poolv1.MachineConfigPool {
		GinkgoHelper()
		infra.Spec.Config.Raw = []byte(document)
		Expect(s.Update(ctx(), infra)).To(Succeed())
		return s.reconcile("infra") // its cache does not have the rendered config yet
	}
	const file, disk = `{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":%q,"contents":{"source":"data:,x"}}]}}`,
		`{"ignition":{"version":"3.4.0"},"storage":{"disks":[{"device":"/dev/vdb","wipeTable":true}]}}`
	policy := func(action poolv1.DisruptionAction) {
		GinkgoHelper()
		p := s.pool("infra")
		p.Generation++
		p.Spec.Updates.DisruptionPolicy.Files = []poolv1.PathDisruptionPolicy{{Path: "/etc", Actions: poolv1.DisruptionActions{action}}}
		Expect(s.Update(ctx(), p)).To(Succeed())
	}

	It("is absent while all hosts run what the pool renders, and for hosts without an agent", func() {
		runs("m1", first)
		Expect(s.Create(ctx(), joined(machine("m2", "infra", "rendered-infra-0", true)))).To(Succeed())
		Expect(s.reconcile("infra").Status.Prediction).To(BeZero())
	})

	It("counts the hosts by what happens to them, and follows the policy", func() {
		runs("m1", first)
		runs("m2", first)
		runs("m3", "rendered-infra-gone")
		p := change(fmt.Sprintf(file, "/etc/app.conf"))
		Expect(p.Status.Prediction).To(And(HaveField("Configuration", p.Status.Configuration.Name),
			HaveField("Reboot", HaveValue(BeEquivalentTo(2))), HaveField("Unknown", HaveValue(BeEquivalentTo(1))), HaveField("None", HaveValue(BeZero()))))

		policy(poolv1.DisruptionAction{Type: poolv1.ActionReload, Unit: "app.service"})
		Expect(s.reconcile("infra").Status.Prediction).To(And(HaveField("Reboot", HaveValue(BeZero())), HaveField("Reload", HaveValue(BeEquivalentTo(2)))))
		policy(poolv1.DisruptionAction{Type: poolv1.ActionNone})
		Expect(s.reconcile("infra").Status.Prediction.None).To(HaveValue(BeEquivalentTo(2)))
	})

	It("names the first hosts that must be replaced", func() {
		for i := range 12 {
			runs(fmt.Sprintf("m%02d", i), first)
		}
		p := change(disk)
		Expect(p.Status.Prediction.Replace).To(HaveValue(BeEquivalentTo(12)))
		Expect(p.Status.Prediction.ReplacedHosts).To(And(HaveLen(maxReplaced), HaveExactElements(HavePrefix("m00"), HavePrefix("m01"),
			HavePrefix("m02"), HavePrefix("m03"), HavePrefix("m04"), HavePrefix("m05"), HavePrefix("m06"), HavePrefix("m07"), HavePrefix("m08"), HavePrefix("m09"))))
	})

	It("counts no host as one that must be replaced if running hosts keep their disks, also by the policy of worker", func() {
		runs("m1", first)
		set := func(name string, policy poolv1.DiskPolicy) {
			GinkgoHelper()
			p := s.pool(name)
			p.Generation++
			p.Spec.Updates.DiskPolicy = policy
			Expect(s.Update(ctx(), p)).To(Succeed())
		}
		set("worker", poolv1.DiskNewHostsOnly)
		p := change(disk)
		Expect(p.Status.Prediction).To(And(HaveField("Replace", HaveValue(BeZero())), HaveField("Reboot", HaveValue(BeEquivalentTo(1)))), "a file is removed")
		set("infra", poolv1.DiskRefuse)
		Expect(s.reconcile("infra").Status.Prediction.Replace).To(HaveValue(BeEquivalentTo(1)))
	})

	It("counts a host without a program for the change as one that must be replaced, and no other", func() {
		runs("m1", first)
		runs("m2", first)
		c := &bootstrapv1.PoolbootConfig{}
		Expect(s.Get(ctx(), client.ObjectKey{Namespace: infra.Namespace, Name: "m2"}, c)).To(Succeed())
		c.Status.Update.UnsupportedChanges = []string{"KernelArguments"}
		Expect(s.Status().Update(ctx(), c)).To(Succeed())
		infra.Spec.KernelArguments = []string{"quiet"}
		p := change(`{"ignition":{"version":"3.4.0"}}`)
		Expect(p.Status.Prediction).To(And(HaveField("Reboot", HaveValue(BeEquivalentTo(1))), HaveField("Replace", HaveValue(BeEquivalentTo(1))), HaveField("ReplacedHosts", Equal([]string{"m2"}))))
		infra.Spec.KernelArguments = nil
		Expect(change(fmt.Sprintf(file, "/etc/app.conf")).Status.Prediction.Reboot).To(HaveValue(BeEquivalentTo(2)))
	})

	It("is known while the pool is paused, for what waits", func() {
		runs("m1", first)
		s.pause(true)
		p := change(fmt.Sprintf(file, "/etc/app.conf"))
		Expect(p.Status.Configuration.Name).To(Equal(first))
		Expect(p.Status.Prediction).To(And(HaveField("Configuration", Not(Equal(first))), HaveField("Reboot", HaveValue(BeEquivalentTo(1)))))
	})

	It("includes a restart that was requested, of hosts that were not told it yet and come from no other pool", func() {
		runs("m1", first)
		runs("m2", first)
		told := &bootstrapv1.PoolbootConfig{}
		Expect(s.Get(ctx(), client.ObjectKey{Namespace: infra.Namespace, Name: "m2"}, told)).To(Succeed())
		told.Status.Update.Restart = "1"
		Expect(s.Status().Update(ctx(), told)).To(Succeed())
		request := func(kind poolv1.RestartKind) *poolv1.MachineConfigPool {
			p := s.pool("infra")
			p.Generation++
			p.Spec.Updates.Restart = poolv1.RestartRequest{ID: "1", Kind: kind}
			Expect(s.Update(ctx(), p)).To(Succeed())
			return s.reconcile("infra")
		}
		Expect(request(poolv1.RestartReboot).Status.Prediction).To(And(HaveField("Reboot", HaveValue(BeEquivalentTo(1))), HaveField("None", HaveValue(BeZero()))))
		Expect(request(poolv1.RestartKubelet).Status.Prediction).To(And(HaveField("Restart", HaveValue(BeEquivalentTo(1))), HaveField("Reboot", HaveValue(BeZero()))))
		policy(poolv1.DisruptionAction{Type: poolv1.ActionNone})
		runs("m3", s.reconcile("worker").Status.Configuration.Name)
		request(poolv1.RestartReboot)
		Expect(s.reconcile("infra").Status.Prediction).To(And(HaveField("Reboot", HaveValue(BeEquivalentTo(1))), HaveField("Restart", HaveValue(BeEquivalentTo(1)))))
	})

	It("includes the restart of the kubelet of a host that comes from another pool", func() {
		other := s.reconcile("worker").Status.Configuration.Name
		policy(poolv1.DisruptionAction{Type: poolv1.ActionNone})
		runs("m1", other)
		Expect(s.reconcile("infra").Status.Prediction.Restart).To(HaveValue(BeEquivalentTo(1)))
	})
})
