package rollout

import (
	"context"
	"errors"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

// excepts adds an exception to a pool.
func excepts(node string, action poolv1.UpdateExceptionAction, until time.Time) func(*poolv1.MachineConfigPool) {
	return func(p *poolv1.MachineConfigPool) {
		p.Spec.Updates.Exceptions = append(p.Spec.Updates.Exceptions, poolv1.UpdateException{Node: node, Action: action, Until: &metav1.Time{Time: until}, Reason: "waits for a disk"})
	}
}

// all makes several changes.
func all(changes ...func(*poolv1.MachineConfigPool)) func(*poolv1.MachineConfigPool) {
	return func(p *poolv1.MachineConfigPool) {
		for _, change := range changes {
			change(p)
		}
	}
}

// oneLine returns a text without its lines.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

var _ = Describe("except", func() {
	tomorrow := time.Now().Add(24 * time.Hour).UTC().Truncate(time.Second)
	until := tomorrow.Format(time.RFC3339)
	exceptions := func(ctx context.Context, s *site) []poolv1.UpdateException {
		GinkgoHelper()
		p := &poolv1.MachineConfigPool{}
		Expect(s.live.Get(ctx, client.ObjectKey{Namespace: "edge", Name: "infra"}, p)).To(Succeed())
		return p.Spec.Updates.Exceptions
	}

	It("skips a host until a time, replaces its entry, and keeps those of others", func(ctx SpecContext) {
		s := newSite(excepts("b", poolv1.ExceptionSkip, tomorrow), done("a"), done("b"))
		Expect(clitest.ExpectSuccess(s.run("except", "infra", "a", "--skip", "--until", until, "--reason", "waits for a disk"))).To(Equal(
			"host a of MachineConfigPool edge/infra: skipped until " + until + ": waits for a disk\n"))
		Expect(exceptions(ctx, s)).To(HaveExactElements(HaveField("Node", "b"), And(HaveField("Node", "a"), HaveField("Action", poolv1.ExceptionSkip), HaveField("Reason", "waits for a disk"))))
		Expect(exceptions(ctx, s)[1].Until.Time).To(BeTemporally("==", tomorrow))

		Expect(clitest.ExpectSuccess(s.run("except", "pbpool/infra", "a", "--ignore-window", "--until", "4h", "--reason", "try it"))).To(HavePrefix(
			"host a of MachineConfigPool edge/infra: ignores the maintenance window until "))
		Expect(exceptions(ctx, s)).To(HaveExactElements(HaveField("Node", "b"), And(HaveField("Node", "a"), HaveField("Action", poolv1.ExceptionIgnoreWindow))))
		Expect(exceptions(ctx, s)[1].Until.Time).To(BeTemporally("~", time.Now().Add(4*time.Hour), 10*time.Second))

		Expect(clitest.ExpectSuccess(s.run("except", "infra", "a", "--remove"))).To(Equal("host a of MachineConfigPool edge/infra is updated as the others\n"))
		Expect(exceptions(ctx, s)).To(HaveExactElements(HaveField("Node", "b")))
		Expect(clitest.ExpectSuccess(s.run("except", "infra", "a", "--remove"))).To(Equal("MachineConfigPool edge/infra has no exception for the Node a\n"))
	})

	It("loses no exception that somebody else sets or removes at the same time", func(ctx SpecContext) {
		s := newSite(excepts("b", poolv1.ExceptionSkip, tomorrow), done("a"))
		isFirst := true
		live := s.live
		s.live = interceptor.NewClient(live, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			if isFirst {
				isFirst = false
				p := &poolv1.MachineConfigPool{}
				Expect(live.Get(ctx, client.ObjectKeyFromObject(o), p)).To(Succeed())
				p.Spec.Updates.Exceptions = nil
				excepts("c", poolv1.ExceptionIgnoreWindow, tomorrow)(p)
				Expect(live.Update(ctx, p)).To(Succeed())
			}
			return c.Patch(ctx, o, patch, options...)
		}})
		clitest.ExpectSuccess(s.run("except", "infra", "a", "--skip", "--until", "1h", "--reason", "x"))
		Expect(exceptions(ctx, s)).To(HaveExactElements(HaveField("Node", "c"), HaveField("Node", "a")))
	})

	It("says that the host completes the update that it has begun, or why it does not begin", func() {
		began := applies("a")
		began.Status.Update.Stage = bootstrapv1.UpdateStage("Applying")
		Expect(oneLine(clitest.ExpectSuccess(newSite(nil, began).run("except", "infra", "a", "--skip", "--until", "1h", "--reason", "x")))).To(HaveSuffix(": x. It completes the update that it has begun"))
		Expect(oneLine(clitest.ExpectSuccess(newSite(paused, waits("a")).run("except", "infra", "a", "--ignore-window", "--until", "1h", "--reason", "x")))).To(ContainSubstring(": x. It begins no update yet: the pool is paused"))
	})

	It("notes a Node that is that of no host, and keeps the exception for one that joins", func(ctx SpecContext) {
		s := newSite(nil, done("a"))
		result := s.run("except", "infra", "typo", "--skip", "--until", "1h", "--reason", "x")
		Expect(result.Code).To(BeZero())
		Expect(oneLine(result.ErrOut)).To(Equal("note: MachineConfigPool edge/infra has no running host with the Node typo now: the exception does nothing before it has one"))
		Expect(exceptions(ctx, s)).To(HaveLen(1))
	})

	DescribeTable("refuses", func(ctx SpecContext, words string, args ...string) {
		s := newSite(nil, done("a"))
		clitest.ExpectError(s.run(append([]string{"except", "infra"}, args...)...), 1, words)
		Expect(exceptions(ctx, s)).To(BeEmpty())
	},
		Entry("no Node", "the arguments are a MachineConfigPool and a Node of it: name both", "--skip", "--until", "1h", "--reason", "x"),
		Entry("no action", "set --skip, --ignore-window or --remove", "a", "--until", "1h", "--reason", "x"),
		Entry("two actions", "--ignore-window and --skip exclude each other: leave out all but one", "a", "--skip", "--ignore-window", "--until", "1h", "--reason", "x"),
		Entry("no end", "--until: an exception must have an end: set a duration such as 4h", "a", "--skip", "--reason", "x"),
		Entry("an end that is no time", "--until tomorrow: it is neither a duration nor a time: set a duration such as 4h, or a time in the format of RFC 3339", "a", "--skip", "--until", "tomorrow", "--reason", "x"),
		Entry("an end in the past", "--until 2020-01-01T00:00:00Z: it is in the past", "a", "--skip", "--until", "2020-01-01T00:00:00Z", "--reason", "x"),
		Entry("a negative duration", "--until -4h: it is in the past", "a", "--skip", "--until=-4h", "--reason", "x"),
		Entry("no reason", "--reason: others see why the exception exists until it ends: set it", "a", "--skip", "--until", "1h"),
		Entry("a reason of blanks", "--reason: others see why the exception exists until it ends: set it", "a", "--skip", "--until", "1h", "--reason", " "),
	)

	It("reports the field that could not be written, also if it changes again and again", func() {
		s := newSite(nil, done("a"))
		fail := func(err error) {
			s.live = interceptor.NewClient(s.live, interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				return err
			}})
		}
		fail(errors.New("forbidden"))
		clitest.ExpectError(s.run("except", "infra", "a", "--skip", "--until", "1h", "--reason", "x"), 1, "patch spec.updates.exceptions of MachineConfigPool edge/infra: forbidden")
		fail(apierrors.NewConflict(schema.GroupResource{}, "infra", errors.New("changed")))
		clitest.ExpectError(s.run("except", "infra", "a", "--skip", "--until", "1h", "--reason", "x"), 1, "patch spec.updates.exceptions of MachineConfigPool edge/infra: ")
	})

	Describe("is shown by status", func() {
		skipsB := excepts("b", poolv1.ExceptionSkip, tomorrow)
		doneBut := func(p *poolv1.MachineConfigPool) {
			p.Status.Conditions = []metav1.Condition{{Type: poolv1.UpdatedCondition, Status: metav1.ConditionFalse, Reason: poolv1.HostsSkippedReason}}
		}

		It("with the exit code 2 when all others are done, with date and reason", func() {
			s := newSite(all(skipsB, doneBut), done("a"), waits("b"))
			result := s.run("status", "infra")
			Expect(result.Code).To(Equal(2))
			Expect(oneLine(result.ErrOut)).To(ContainSubstring("1 of 2 hosts run rendered-infra-1; b is skipped until " + until + ": waits for a disk"))
			Expect(strings.Join(clitest.Rows(s.run("status", "infra").Out), "\n")).To(ContainSubstring("Exception: skipped until " + until + ": waits for a disk"))
			result = s.run("status", "infra", "--watch", "--timeout", "30s")
			Expect(result.Code).To(Equal(2))
			Expect(result.ErrOut).NotTo(ContainSubstring("expired"), "it does not wait for days")
			Expect(oneLine(result.ErrOut)).To(ContainSubstring("b is skipped until " + until))
			Expect(s.run("status", "-A").Code).To(Equal(2))
			Expect(newSite(skipsB, applies("a"), waits("b")).run("status", "infra").Code).To(BeZero(), "another one is updated")
		})

		It("as one that needs nobody after its update failed", func() {
			Expect(newSite(all(skipsB, doneBut), done("a"), failed("b", newConfig)).run("status", "infra").Code).To(Equal(2))
			expired := excepts("b", poolv1.ExceptionSkip, time.Now().Add(-time.Second))
			Expect(newSite(all(expired, doneBut), done("a"), failed("b", newConfig)).run("status", "infra").Code).To(Equal(1))
		})

		It("as one that is to begin although the window is closed", func() {
			Expect(newSite(closed, done("a"), waits("b")).run("status", "infra").Code).To(Equal(2))
			s := newSite(all(closed, excepts("b", poolv1.ExceptionIgnoreWindow, tomorrow)), done("a"), waits("b"))
			Expect(s.run("status", "infra").Code).To(BeZero())
			Expect(strings.Join(clitest.Rows(s.run("status", "infra").Out), "\n")).To(ContainSubstring("Exception: ignores the maintenance window until " + until + ": waits for a disk"))
		})
	})

	Describe("is shown by plan", func() {
		It("with others in the place of the host, and what does nothing", func() {
			s := newSite(all(excepts("b", poolv1.ExceptionSkip, tomorrow), excepts("typo", poolv1.ExceptionIgnoreWindow, tomorrow),
				excepts("d", poolv1.ExceptionSkip, time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))), done("a"), waits("b"), waits("c"), waits("d"))
			Expect(clitest.Rows(clitest.ExpectSuccess(s.run("plan", "infra")))).To(Equal([]string{
				"POOL MAXUNAVAILABLE UNAVAILABLE CAPACITY NEXT", "infra 1 <none> 1 c", "",
				"POOL HOST WHY IT IS NOT NEXT",
				"infra b it is skipped until " + until + ": waits for a disk (spec.updates.exceptions of the pool)",
				"infra d others are first, by zone and age", "",
				"POOL NODE EXCEPTION UNTIL REASON",
				"infra b Skip " + until + " waits for a disk",
				"infra typo IgnoreWindow " + until + " waits for a disk (the pool has no host with this Node: correct or remove it)",
				"infra d Skip 2020-01-01T00:00:00Z waits for a disk (it has expired: remove it)",
			}))
		})

		It("with the only host that is next while the window is closed, or why none is", func() {
			s := newSite(all(closed, excepts("c", poolv1.ExceptionIgnoreWindow, tomorrow)), waits("b"), waits("c"))
			Expect(clitest.Rows(clitest.ExpectSuccess(s.run("plan", "infra")))[1]).To(Equal("infra 1 <none> 1 c"))
			s = newSite(excepts("b", poolv1.ExceptionSkip, tomorrow), done("a"), waits("b"))
			Expect(oneLine(clitest.ExpectSuccess(s.run("plan", "infra")))).To(ContainSubstring("No host of the pool infra is next: host b: it is skipped until " + until))
			s = newSite(all(paused, excepts("c", poolv1.ExceptionIgnoreWindow, tomorrow)), waits("b"), waits("c"))
			Expect(oneLine(clitest.ExpectSuccess(s.run("plan", "infra")))).To(ContainSubstring("No host of the pool infra is next: the pool is paused"))
		})
	})
})
