package rollout

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

// newRendered returns a rendered config of the pool infra.
func newRendered(name string, minute int64, spec string) *poolv1.MachineConfig {
	c := &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: name, Labels: map[string]string{poolv1.RenderedForLabel: "infra"},
		CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Duration(60-minute) * time.Minute)),
		OwnerReferences:   []metav1.OwnerReference{{APIVersion: "v1", Kind: "Cluster", Name: "infra-1", UID: "1"}}}}
	if spec != "" {
		c.Spec.Config = &runtime.RawExtension{Raw: []byte(spec)}
	}
	return c
}

var _ = Describe("history", func() {
	handedOut := func(names ...string) func(*poolv1.MachineConfigPool) {
		return func(p *poolv1.MachineConfigPool) {
			for i, name := range names {
				at := metav1.NewTime(time.Now().Add(-time.Duration(50-10*i) * time.Minute))
				p.Status.History = append(p.Status.History, poolv1.HandedOutConfiguration{Name: name, StartTime: &at})
			}
		}
	}

	It("lists the rendered configs as they were handed out, with their hosts and changes", func(ctx SpecContext) {
		s := newSite(handedOut(oldConfig, newConfig), done("a"), applies("b"), waits("c"))
		for _, c := range []*poolv1.MachineConfig{
			newRendered(newConfig, 5, `{"ignition":{"version":"3.5.0"},"storage":{"disks":[{"device":"/dev/sdb","wipeTable":true}],"files":[{"path":"/etc/a","contents":{"source":"data:,2"}},{"path":"/etc/b"}]},"systemd":{"units":[{"name":"a.service"}]}}`),
			newRendered(oldConfig, 10, `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:,1"}}]},"systemd":{"units":[{"name":"b.service"}]}}`),
		} {
			Expect(s.live.Create(ctx, c)).To(Succeed())
		}
		document, err := os.ReadFile(sourcetree.Path("docs", "kubectl-poolboot.md"))
		Expect(err).NotTo(HaveOccurred())
		documented := regexp.MustCompile("(?ms)^```console history\n.*?\n(.*?)^```").FindSubmatch(document)
		Expect(documented).NotTo(BeNil())
		names := strings.NewReplacer("infra@6db67f47", oldConfig, "infra@8c1f02a9", newConfig, "infra-9pq4c", "a", "infra-k2x8v", "b", "infra-z4w6t", "c")
		Expect(clitest.Rows(clitest.ExpectSuccess(s.run("history", "infra")))).To(And(HaveLen(3), Equal(clitest.Rows(names.Replace(string(documented[1]))))))
		Expect(clitest.ExpectSuccess(s.run("history", "infra", "-o", "json"))).To(And(ContainSubstring(`"changes": null`), ContainSubstring(`"~ file /etc/a"`), ContainSubstring(`"handedOutTime": "20`)))
	})

	It("lists a config again that was handed out again, one that a paused pool holds back, and hosts that failed", func(ctx SpecContext) {
		s := newSite(func(p *poolv1.MachineConfigPool) {
			handedOut(newConfig, "rendered-infra-deleted", newConfig)(p)
			p.Status.Prediction.Configuration = "rendered-infra-2"
		}, done("a"), failed("b", newConfig))
		for _, c := range []*poolv1.MachineConfig{newRendered(newConfig, 5, `{"ignition":{"version":"3.5.0"}}`), newRendered("rendered-infra-2", 59, `{"ignition":{"version":"3.5.0"},"systemd":{"units":[{"name":"a.service"}]}}`)} {
			Expect(s.live.Create(ctx, c)).To(Succeed())
		}
		Expect(clitest.Rows(clitest.ExpectSuccess(s.run("history", "infra")))[1:]).To(Equal([]string{
			newConfig + " 50m ago <none> <none> <none> <none>", "rendered-infra-deleted 40m ago, deleted <none> <none> <none> <unknown>", newConfig + " 30m ago, now a b b <unknown>",
			"rendered-infra-2 waits <none> <none> <none> + unit a.service"}))
		Expect(s.run("pause", "infra", "--configuration", "rendered-infra-deleted").ErrOut).To(ContainSubstring(
			"MachineConfigPool edge/infra handed out rendered-infra-deleted, which was deleted: choose one that kubectl poolboot rollout history infra -n edge lists without deleted"))
	})

	It("names the hosts whose update to a config failed, also when they run another one, and says when it began and ended, and why it failed", func(ctx SpecContext) {
		now := time.Now()
		at := func(minutes int) *metav1.Time {
			return ptr.To(metav1.NewTime(now.Add(time.Duration(minutes) * time.Minute).Truncate(time.Second).UTC()))
		}
		a, b, c := done("a"), done("b"), done("c")
		c.Status.Update.History = []bootstrapv1.HostUpdate{{Configuration: "rendered-infra-bad", StartTime: at(-33), CompletionTime: at(-32), Result: "UnitsFailing", Message: "web.service: it failed"},
			{Configuration: newConfig, StartTime: at(-20), CompletionTime: at(-19), Result: "Superseded", Message: "web.service: it failed"}}
		a.Status.Update.History = []bootstrapv1.HostUpdate{
			{Configuration: "rendered-infra-bad", StartTime: at(-35), CompletionTime: at(-34), Result: "Degraded", Message: "web.service: it failed"},
			{Configuration: newConfig, StartTime: at(-25), CompletionTime: at(-24), Result: "Done", Effect: "Reboot",
				Stages: []bootstrapv1.UpdateStageDuration{{Stage: bootstrapv1.UpdateRebooting, Seconds: 100}}}}
		b.Status.Update.History = []bootstrapv1.HostUpdate{{Configuration: newConfig, StartTime: at(-45), CompletionTime: at(-44), Result: "Done"}, {Configuration: newConfig, StartTime: at(-24)}}
		s := newSite(handedOut(newConfig, "rendered-infra-bad", newConfig), a, b, c)
		Expect(clitest.Rows(clitest.ExpectSuccess(s.run("history", "infra")))[1:]).To(HaveExactElements(
			HaveSuffix("ago, deleted <none> <none> <none> <none>"), HaveSuffix("ago, deleted <none> <none> a, c <unknown>"), HaveSuffix("now a, b, c <none> c <unknown>")))
		row := func(cells ...any) string { return strings.TrimSpace(fmt.Sprintln(cells...)) }
		text := func(at *metav1.Time) string { return at.Format(time.RFC3339) }
		Expect(clitest.Rows(clitest.ExpectSuccess(s.run("history", "infra", "--configuration", "rendered-infra-bad")))).To(HaveExactElements(
			"HOST BEGAN ENDED RESULT EFFECT STAGES MESSAGE", row("a", text(at(-35)), text(at(-34)), "Degraded", "<none> <none> web.service: it failed"),
			row("c", text(at(-33)), text(at(-32)), "UnitsFailing", "<none> <none> web.service: it failed")))
		Expect(clitest.Rows(clitest.ExpectSuccess(s.run("history", "infra", "--configuration", newConfig)))[1:]).To(HaveExactElements(
			row("b", text(at(-45)), text(at(-44)), "Done <none> <none> <none>"), row("a", text(at(-25)), text(at(-24)), "Done Reboot Rebooting 1m40s <none>"), row("b", text(at(-24)), "<none> <none> <none> <none> <none>"),
			row("c", text(at(-20)), text(at(-19)), "Superseded", "<none> <none> web.service: it failed")))
		Expect(s.run("history", "infra", "--configuration", "no").ErrOut).To(ContainSubstring("--configuration: MachineConfigPool edge/infra has no rendered config no"))
	})

	It("names a host that failed while its Machine is being deleted, and not as one that runs a config", func() {
		gone := failed("b", newConfig)
		gone.DeletionTimestamp, gone.Finalizers = ptr.To(metav1.Now()), []string{"poolboot.io/test"}
		gone.Status.Update.History = []bootstrapv1.HostUpdate{{Configuration: newConfig, StartTime: ptr.To(metav1.Now()), Result: "Degraded", Message: "web.service: it failed"}}
		s := newSite(handedOut(newConfig), done("a"), gone)
		Expect(clitest.Rows(clitest.ExpectSuccess(s.run("history", "infra")))[1:]).To(HaveExactElements(HaveSuffix("now a <none> b <none>")))
		Expect(clitest.Rows(clitest.ExpectSuccess(s.run("history", "infra", "--configuration", newConfig)))).To(ContainElement(And(HavePrefix("b "), HaveSuffix("web.service: it failed"))))
	})

	It("names who changed or removed the MachineConfigs and the pool between two configs, and no one who changed something else", func() {
		begin := time.Now().Truncate(time.Second)
		field := func(manager, fields, subresource string, seconds int) metav1.ManagedFieldsEntry {
			return metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, Time: ptr.To(metav1.NewTime(begin.Add(time.Duration(seconds) * time.Second))),
				FieldsV1: metav1.NewFieldsV1(fields)}
		}
		const spec = `{"f:spec":{"f:config":{}}}`
		named := func(name string, fields ...metav1.ManagedFieldsEntry) metav1.PartialObjectMetadata {
			return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, ManagedFields: fields}}
		}
		p := &poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "infra", ManagedFields: []metav1.ManagedFieldsEntry{
			field("kubectl-edit", spec, "", 5), field("manager", `{"f:metadata":{"f:annotations":{}}}`, "", 5), field("manager", spec, "status", 5)}}}
		p.Status.Configuration.Source = []poolv1.MachineConfigSource{{Name: "50-web"}, {Name: "51-web"}}
		Expect(listChanged(p, []metav1.PartialObjectMetadata{
			named("50-web", field("kubectl-client-side-apply", spec, "", 10), field("argocd", spec, "", 11)), named("51-web", field("early", spec, "", 0)), named("other", field("kubectl", spec, "", 5)),
			named("relabeled", field("kubectl-label", `{"f:metadata":{"f:labels":{}}}`, "", 6)),
		}, []string{"relabeled"}, begin, begin.Add(10*time.Second))).To(HaveExactElements(
			And(HaveField("Object", "MachineConfigPool infra"), HaveField("Manager", "kubectl-edit")),
			And(HaveField("Object", "MachineConfig relabeled"), HaveField("Manager", "kubectl-label")),
			And(HaveField("Object", "MachineConfig 50-web"), HaveField("Manager", "kubectl-client-side-apply"))), "in the order of time")
	})

	It("says why an object was changed last, if that is given, in one line that prints, and not for changes before that", func() {
		begin := time.Now().Truncate(time.Second)
		entry := func(manager string, seconds int) metav1.ManagedFieldsEntry {
			return metav1.ManagedFieldsEntry{Manager: manager, Time: ptr.To(metav1.NewTime(begin.Add(time.Duration(seconds) * time.Second))), FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)}
		}
		p := &poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "infra", ManagedFields: []metav1.ManagedFieldsEntry{entry("first", 1), entry("last", 2)},
			Annotations: map[string]string{"kubernetes.io/change-cause": "more\x1b[31m Pods:\n" + strings.Repeat("why ", 1000)}}}
		Expect(listChanged(p, nil, nil, begin, begin.Add(time.Minute))).To(HaveExactElements(HaveField("Cause", ""),
			HaveField("Cause", And(HavePrefix("more [31m Pods: why why "), HaveSuffix(" …"), WithTransform(func(s string) int { return len(s) }, BeNumerically("<=", maxCause))))))
		Expect(listChanged(p, nil, nil, begin, begin.Add(time.Second))).To(HaveExactElements(HaveField("Cause", "")), "it was changed again since then")
	})

	DescribeTable("names a MachineConfig that was deleted", func(change string) {
		const handedOutIt = "rendered-infra-2"
		updated := done("a")
		updated.Status.Update.History = []bootstrapv1.HostUpdate{{Configuration: handedOutIt, StartTime: ptr.To(metav1.Now())}}
		s := newSite(func(p *poolv1.MachineConfigPool) {
			handedOut(newConfig, handedOutIt)(p)
			p.Status.Configuration = poolv1.PoolConfiguration{Name: handedOutIt, Source: []poolv1.MachineConfigSource{{Name: "a"}}}
			p.Status.History[1].Changes, p.Status.History[1].ChangeCount = []string{change, "- file /etc/b"}, ptr.To[int32](2)
		}, updated)
		Expect(clitest.Rows(clitest.ExpectSuccess(s.run("history", "infra")))[2]).To(HaveSuffix(" " + change + ", - file /etc/b"))
		Expect(clitest.Rows(clitest.ExpectSuccess(s.run("history", "infra", "--configuration", handedOutIt)))).To(ContainElements(
			"CHANGED BY AT CAUSE", "MachineConfig b, which was deleted <none> <none> <none>"))
		Expect(clitest.ExpectSuccess(s.run("history", "infra", "--configuration", handedOutIt, "-o", "json"))).To(MatchRegexp(`"object": "MachineConfig b",\s+"deleted": true\s+}`))
	}, Entry("then", "- MachineConfig b"), Entry("since, and was added then", "+ MachineConfig b"))

	It("tells a config without changes from one whose changes are unknown", func(ctx SpecContext) {
		s := newSite(handedOut(oldConfig, newConfig))
		for i, name := range []string{oldConfig, newConfig} {
			Expect(s.live.Create(ctx, newRendered(name, int64(i), ""))).To(Succeed())
		}
		Expect(clitest.Rows(clitest.ExpectSuccess(s.run("history", "infra")))[2]).To(Equal(newConfig + " 40m ago, now <none> <none> <none> <none>"))
	})

	It("says how long an update was in its stages", func() {
		Expect(describeStages([]bootstrapv1.UpdateStageDuration{{Stage: bootstrapv1.UpdateDraining, Seconds: 12}, {Stage: bootstrapv1.UpdateRebooting, Seconds: 100}})).To(Equal("Draining 12s, Rebooting 1m40s"))
		Expect(describeStages(nil)).To(BeEmpty())
	})

	It("says that older updates are not kept if no host has one to a config on record", func() {
		s := newSite(handedOut(newConfig), done("a"))
		Expect(s.run("history", "infra", "--configuration", newConfig).ErrOut).To(Equal(
			"no host has an update to it on record: a host keeps its last 5 updates, until its Machine is deleted\n"))
	})

	It("lists what a config changed when it was handed out, also if the config before it is deleted", func(ctx SpecContext) {
		s := newSite(func(p *poolv1.MachineConfigPool) {
			handedOut("rendered-infra-deleted", oldConfig, newConfig)(p)
			p.Status.History[1].ChangeCount = ptr.To[int32](0)
			p.Status.History[2].Changes, p.Status.History[2].ChangeCount = []string{"file /etc/a", "file /etc/b", "file /etc/c", "file /etc/d", "file /etc/e", "unit a.service"}, ptr.To[int32](8)
		})
		changes := func(args ...string) []string {
			return clitest.Rows(clitest.ExpectSuccess(s.run(append([]string{"history", "infra"}, args...)...)))[1:]
		}
		Expect(changes()).To(HaveExactElements(HaveSuffix("<none> <none> <none> <none>"), HaveSuffix("<none> <none> <none> <none>"), HaveSuffix("file /etc/a, file /etc/b, file /etc/c, file /etc/d, file /etc/e and 3 more")))
		Expect(changes("-o", "wide")).To(ContainElement(HaveSuffix("file /etc/e, unit a.service and 2 more")))
	})

	It("keeps the order in which configs were handed out if the clock of another manager is behind", func() {
		s := newSite(func(p *poolv1.MachineConfigPool) {
			handedOut(newConfig, oldConfig)(p)
			p.Status.History[1].StartTime = &metav1.Time{Time: p.Status.History[0].StartTime.Add(-time.Minute)}
		}, done("a"))
		Expect(clitest.Rows(clitest.ExpectSuccess(s.run("history", "infra")))[1:]).To(HaveExactElements(HavePrefix(newConfig+" 50m ago"), HavePrefix(oldConfig+" 51m ago")))
	})

	It("says if there is none", func() {
		Expect(newSite(nil).run("history", "infra").ErrOut).To(Equal("MachineConfigPool edge/infra has no rendered config: see its conditions\n"))
	})
})
