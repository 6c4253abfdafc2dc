package rollout_test

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

var _ = Describe("A host whose operating system needs a reboot", func() {
	report := func(annotation string) bootstrapv1.RebootRequired {
		node := &corev1.Node{}
		node.Annotations = map[string]string{agentv1.ReportVersionAnnotation: "1", agentv1.RebootRequiredAnnotation: annotation}
		node.Status.NodeInfo.BootID = "b-1"
		return rollout.ReportOf(node).RebootRequired
	}

	It("says since when, and the first packages", func() {
		Expect(report("b-1\nlinux-base")).To(Equal(bootstrapv1.RebootRequired{BootID: "b-1", Since: bootstrapv1.RebootRequiredLater, Packages: []string{"linux-base"}}))
		Expect(report("b-1 AtBoot")).To(Equal(bootstrapv1.RebootRequired{BootID: "b-1", Since: bootstrapv1.RebootRequiredAtBoot}))
		Expect(report("b-1\n" + strings.Repeat("a\nb\nc\n", 10)).Packages).To(Equal([]string{"a", "b", "c"}))
	})

	DescribeTable("is not believed", func(annotation string) { Expect(report(annotation)).To(BeZero()) },
		Entry("about an earlier boot", "b-0\nlinux-base"),
		Entry("without a boot", "\nlinux-base"),
		Entry("with a boot that is none", "$(reboot)"),
		Entry("with nothing", ""),
	)

	It("can claim only names, and a bounded number of them", func() {
		hostile := "b-1\n\x1b[2J\n$(reboot)\n| a |\n<b>\n"
		for i := range 100 {
			hostile += "p" + strings.Repeat("x", i%100) + "\n"
		}
		Expect(report(hostile + strings.Repeat("y", 1<<20)).Packages).To(And(HaveLen(bootstrapv1.MaxRebootPackages), HaveEach(MatchRegexp("^px*$"))))
	})

	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	required := func(since bootstrapv1.RebootRequiredSince) bootstrapv1.RebootRequired {
		return bootstrapv1.RebootRequired{BootID: "b-2", Since: since}
	}
	DescribeTable("is rebooted", func(policy poolv1.RebootRequiredPolicy, since bootstrapv1.RebootRequiredSince, last record.RebootRequest, isDue bool, wait time.Duration, why string) {
		p := &poolv1.MachineConfigPool{}
		p.Name, p.Spec.Updates.RebootRequiredPolicy = "infra", policy
		decision := rollout.DecideReboot(required(since), last, p, now)
		Expect(decision).To(And(HaveField("IsDue", isDue), HaveField("Wait", wait), HaveField("Why", ContainSubstring(why))))
	},
		Entry("not by default", poolv1.RebootRequiredPolicy(""), bootstrapv1.RebootRequiredLater, record.RebootRequest{}, false, time.Duration(0), "kubectl poolboot rollout restart infra"),
		Entry("the first time, also if it needs it since its boot", poolv1.RebootRequiredReboot, bootstrapv1.RebootRequiredAtBoot, record.RebootRequest{}, true, time.Duration(0), "when it is its turn"),
		Entry("once in a boot", poolv1.RebootRequiredReboot, bootstrapv1.RebootRequiredLater, record.RebootRequest{Boot: "b-2", Time: now}, false, time.Duration(0), "when it is its turn"),
		Entry("not again if that has not ended it", poolv1.RebootRequiredReboot, bootstrapv1.RebootRequiredAtBoot, record.RebootRequest{Boot: "b-1", Time: now.Add(-99 * time.Hour)}, false, time.Duration(0), "no second one"),
		Entry("again after a day", poolv1.RebootRequiredReboot, bootstrapv1.RebootRequiredLater, record.RebootRequest{Boot: "b-1", Time: now.Add(-24 * time.Hour)}, true, time.Duration(0), ""),
		Entry("not more often than once a day", poolv1.RebootRequiredReboot, bootstrapv1.RebootRequiredLater, record.RebootRequest{Boot: "b-1", Time: now.Add(-23 * time.Hour)}, false, time.Hour, "less than a day ago"),
		Entry("also if a clock was ahead", poolv1.RebootRequiredReboot, bootstrapv1.RebootRequiredLater, record.RebootRequest{Boot: "b-1", Time: now.Add(99 * time.Hour)}, true, time.Duration(0), ""),
	)

	It("is described with what happens", func() {
		config, p := &bootstrapv1.PoolbootConfig{}, &poolv1.MachineConfigPool{}
		Expect(rollout.DescribeRebootRequired(config, p, now)).To(BeEmpty())
		config.Status.Update.RebootRequired = bootstrapv1.RebootRequired{BootID: "b", Packages: []string{"a", "b", "c", "d"}}
		p.Spec.Updates.RebootRequiredPolicy = poolv1.RebootRequiredReboot
		Expect(rollout.DescribeRebootRequired(config, p, now)).To(Equal("The operating system needs a reboot (a, b, c and 1 more): it reboots when it is its turn"))
	})

	It("has a record of its last reboot for this, which is read back", func() {
		config := &bootstrapv1.PoolbootConfig{}
		Expect(record.RebootRequestOf(config)).To(BeZero())
		request := record.RebootRequest{Boot: "b-1", Time: now}
		config.Annotations = map[string]string{bootstrapv1.RebootFromAnnotation: request.String()}
		Expect(record.RebootRequestOf(config)).To(Equal(request))
	})
})
