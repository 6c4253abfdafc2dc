package record_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

var began = time.Date(2026, 5, 4, 8, 0, 0, 0, time.UTC)

// at returns the time some minutes after the creation.
func at(minutes int) time.Time { return began.Add(time.Duration(minutes) * time.Minute) }

func micro(minutes int) *metav1.MicroTime { return &metav1.MicroTime{Time: at(minutes)} }

func condition(kind, reason string, status metav1.ConditionStatus, minutes int) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: reason + " it is", LastTransitionTime: metav1.Time{Time: at(minutes)}}
}

// boot returns a PoolbootConfig after a number of steps. Each step takes a minute more than the step before.
func boot(steps int) *bootstrapv1.PoolbootConfig {
	c := &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Time{Time: began}, Annotations: map[string]string{}}}
	for i, take := range []func(minutes int){
		func(m int) {
			c.Status.Conditions = append(c.Status.Conditions, condition(bootstrapv1.DataSecretAvailableCondition, "DataSecretCreated", metav1.ConditionTrue, m))
		},
		func(m int) { c.Status.Boot.HostChosenTime = micro(m) },
		func(m int) {
			c.Status.Requests.FirstRequestedTime, c.Status.Requests.RequestedTime = micro(m), micro(m)
		},
		func(m int) {
			c.Status.Boot.PreparedTime, c.Status.Boot.AnsweredRequestTime = micro(m), c.Status.Requests.RequestedTime
			c.Status.Conditions = append(c.Status.Conditions, condition(bootstrapv1.NodeInPoolCondition, "WaitingForKubelet", metav1.ConditionFalse, m))
		},
		func(m int) { c.Status.Requests.ServedTime = micro(m) },
		func(m int) {
			c.Status.Boot.KubeletRegisteredTime, c.Status.Boot.NodeReadyTime, c.Status.Boot.TokenRevokedTime = &metav1.Time{Time: at(m - 1)}, micro(m), micro(m)
			c.Annotations[bootstrapv1.TokenStateAnnotation] = string(bootstrapv1.TokenStateRevoked)
			c.Status.Conditions[1] = condition(bootstrapv1.NodeInPoolCondition, "NodeReadyInPool", metav1.ConditionTrue, m)
		},
	} {
		if i < steps {
			take((i + 1) * (i + 2) / 2)
		}
	}
	return c
}

// enrolled changes a boot with a data Secret to that of an enrolled host, which needs no data Secret.
func enrolled(c *bootstrapv1.PoolbootConfig) {
	c.Status.Conditions[0].Reason = bootstrapv1.HostEnrolledReason
}

var _ = Describe("The timeline of a boot", func() {
	DescribeTable("returns the stage and its start",
		func(c *bootstrapv1.PoolbootConfig, stage record.Stage, since int, change ...func(*bootstrapv1.PoolbootConfig)) {
			for _, do := range change {
				do(c)
			}
			is, from := record.StageOf(c)
			Expect(is).To(Equal(stage))
			Expect(from).To(BeTemporally("==", at(since)))
		},
		Entry("of a new Machine", boot(0), record.StagePending, 0),
		Entry("with a data Secret", boot(1), record.StageWaitingForHost, 1),
		Entry("with a host", boot(2), record.StageProvisioning, 3),
		Entry("with a host that sent a boot request", boot(3), record.StagePreparing, 6),
		Entry("with a prepared boot", boot(4), record.StageServing, 10),
		Entry("with a host that has its configuration", boot(5), record.StageJoining, 15),
		Entry("with a Node that is Ready", boot(6), record.StageReady, 21),
		Entry("with a host that retries", boot(3), record.StagePreparing, 6, func(c *bootstrapv1.PoolbootConfig) { c.Status.Requests.RequestedTime = micro(9) }),
		Entry("with a host that sends another boot request", boot(5), record.StagePreparing, 40, func(c *bootstrapv1.PoolbootConfig) {
			c.Status.Requests.FirstRequestedTime, c.Status.Requests.RequestedTime = micro(40), micro(44)
		}),
		Entry("with a host that sends another boot request, recorded by a config server of an earlier version", boot(5), record.StagePreparing, 40,
			func(c *bootstrapv1.PoolbootConfig) { c.Status.Requests.RequestedTime = micro(40) }),
		Entry("with a boot that is prepared for another boot request", boot(5), record.StageServing, 41, func(c *bootstrapv1.PoolbootConfig) {
			c.Status.Requests = bootstrapv1.HostRequests{FirstRequestedTime: micro(40), RequestedTime: micro(40)}
			c.Status.Boot.PreparedTime, c.Status.Boot.AnsweredRequestTime = micro(41), micro(40)
		}),
		Entry("with a withdrawn boot", boot(5), record.StageWaitingForHost, 30, func(c *bootstrapv1.PoolbootConfig) {
			c.Status.Conditions = append(c.Status.Conditions, condition(bootstrapv1.BootPreparedCondition, "WaitingForHost", metav1.ConditionUnknown, 30))
		}),
		Entry("with a host that enrolled, before its boot request", boot(1), record.StageProvisioning, 0, enrolled),
		Entry("with a host that enrolled and sent a boot request", boot(1), record.StagePreparing, 2, enrolled, func(c *bootstrapv1.PoolbootConfig) {
			c.Status.Requests.FirstRequestedTime, c.Status.Requests.RequestedTime = micro(2), micro(7)
		}),
		Entry("with a Node that was Ready", boot(6), record.StageNotReady, 50, func(c *bootstrapv1.PoolbootConfig) {
			c.Status.Conditions[1] = condition(bootstrapv1.NodeInPoolCondition, "NodeMissing", metav1.ConditionFalse, 50)
		}),
		Entry("with a Node that has the labels of two pools, and can be Ready", boot(6), record.Stage("OutsidePool"), 50, func(c *bootstrapv1.PoolbootConfig) {
			c.Status.Conditions[1] = condition(bootstrapv1.NodeInPoolCondition, "PoolConflict", metav1.ConditionFalse, 50)
		}),
		Entry("of a host that was adopted, and is as it was found", boot(0), record.StageAsFound, 50, func(c *bootstrapv1.PoolbootConfig) {
			c.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeNode, NodeName: "a", Adoption: bootstrapv1.AdoptionPreview}
			c.Status.Conditions = append(c.Status.Conditions, condition(bootstrapv1.NodeInPoolCondition, "AdoptionPreview", metav1.ConditionUnknown, 50))
		}),
		Entry("with a revoked token, before the Ready Node is on record", boot(5), record.StageJoining, 15, func(c *bootstrapv1.PoolbootConfig) {
			c.Status.Boot.CredentialID = "abcdef"
			record.RevokeToken(c)
		}),
		Entry("of a PoolbootConfig that was moved with clusterctl, whose Node is not Ready", boot(0), record.StageNotReady, 50, func(c *bootstrapv1.PoolbootConfig) {
			record.RevokeToken(c)
			c.Status.Conditions = append(c.Status.Conditions, condition(bootstrapv1.NodeInPoolCondition, "NodeNotReady", metav1.ConditionFalse, 50))
		}),
		Entry("of a PoolbootConfig that is being deleted", boot(3), record.StageDeleting, 60, func(c *bootstrapv1.PoolbootConfig) { c.DeletionTimestamp = &metav1.Time{Time: at(60)} }),
		Entry("from an inline data Secret, which needs no config server", boot(4), record.StageJoining, 10, func(c *bootstrapv1.PoolbootConfig) {
			c.Spec.ConfigSource.Type, c.Status.Requests.RequestedTime = bootstrapv1.ConfigSourceTypeInline, nil
		}),
		Entry("of a PoolbootConfig that was moved with clusterctl, which does not keep the status", &bootstrapv1.PoolbootConfig{
			Status: bootstrapv1.PoolbootConfigStatus{Conditions: []metav1.Condition{condition(bootstrapv1.NodeInPoolCondition, "NodeReadyInPool", metav1.ConditionTrue, 9)}},
		}, record.StageReady, 9),
	)

	It("has every step once, in order", func() {
		var steps []record.Step
		for _, moment := range record.Moments(boot(6)) {
			steps = append(steps, moment.Step)
		}
		Expect(steps).To(Equal([]record.Step{"Created", "DataSecretCreated", "HostChosen", "BootRequested", "BootPrepared", "ConfigServed",
			"KubeletRegistered", "NodeReady", "TokenRevoked"}))
	})

	It("has the duration of each stage, except those that are unknown", func() {
		Expect(record.StageDurations(boot(6))).To(Equal(map[record.Stage]time.Duration{
			record.StagePending: time.Minute, record.StageWaitingForHost: 2 * time.Minute, record.StageProvisioning: 3 * time.Minute,
			record.StagePreparing: 4 * time.Minute, record.StageServing: 5 * time.Minute, record.StageJoining: 6 * time.Minute,
		}))
		inline := boot(6)
		inline.Status.Requests.RequestedTime, inline.Status.Requests.ServedTime = nil, nil
		Expect(record.StageDurations(inline)).To(And(Not(HaveKey(record.StageServing)), HaveKeyWithValue(record.StageJoining, 11*time.Minute)))
	})

	It("ignores the time of a first request from a clock that is far ahead or far behind", func() {
		c := boot(5)
		c.Status.Requests.FirstRequestedTime = micro(600)
		Expect(record.FirstRequestTime(c)).To(Equal(c.Status.Requests.RequestedTime.Time))
		stage, _ := record.StageOf(c)
		Expect(stage).To(Equal(record.StageJoining))
		c.Status.Requests.FirstRequestedTime = micro(-600)
		Expect(record.FirstRequestTime(c)).To(Equal(c.CreationTimestamp.Time))
	})

	DescribeTable("has stages that add up to the time from the creation until the Node is Ready",
		func(change func(*bootstrapv1.PoolbootConfig), stages map[record.Stage]int) {
			c := boot(6)
			change(c)
			sum, took := time.Duration(0), map[record.Stage]time.Duration{}
			for stage, minutes := range stages {
				took[stage] = time.Duration(minutes) * time.Minute
			}
			Expect(record.StageDurations(c)).To(Equal(took))
			for _, stage := range record.StageDurations(c) {
				sum += stage
			}
			Expect(sum).To(Equal(21 * time.Minute))
		},
		Entry("of a host that retried while it was blocked", func(c *bootstrapv1.PoolbootConfig) {
			c.Status.Requests.RequestedTime, c.Status.Boot.AnsweredRequestTime = micro(9), micro(9)
		},
			map[record.Stage]int{record.StagePending: 1, record.StageWaitingForHost: 2, record.StageProvisioning: 3, record.StagePreparing: 4, record.StageServing: 5, record.StageJoining: 6}),
		Entry("of a host that sent another boot request, which starts again", func(c *bootstrapv1.PoolbootConfig) {
			requests := &c.Status.Requests
			requests.FirstRequestedTime, requests.RequestedTime, c.Status.Boot.PreparedTime, requests.ServedTime = micro(16), micro(17), micro(18), micro(19)
			c.Status.Boot.AnsweredRequestTime = requests.RequestedTime
		}, map[record.Stage]int{record.StagePending: 1, record.StageWaitingForHost: 2, record.StageProvisioning: 13, record.StagePreparing: 2, record.StageServing: 1, record.StageJoining: 2}),
		Entry("of a host whose Node was created again after it got its configuration", func(c *bootstrapv1.PoolbootConfig) { c.Status.Boot.PreparedTime = micro(18) },
			map[record.Stage]int{record.StagePending: 1, record.StageWaitingForHost: 2, record.StageProvisioning: 3, record.StagePreparing: 9, record.StageServing: 0, record.StageJoining: 6}),
		Entry("of a host whose data Secret was restored while it booted", func(c *bootstrapv1.PoolbootConfig) { c.Status.Conditions[0].LastTransitionTime.Time = at(8) },
			map[record.Stage]int{record.StagePending: 3, record.StageWaitingForHost: 0, record.StageProvisioning: 3, record.StagePreparing: 4, record.StageServing: 5, record.StageJoining: 6}),
		Entry("of a host for which serving is not on record", func(c *bootstrapv1.PoolbootConfig) { c.Status.Requests.ServedTime = nil },
			map[record.Stage]int{record.StagePending: 1, record.StageWaitingForHost: 2, record.StageProvisioning: 3, record.StagePreparing: 4, record.StageJoining: 11}),
		Entry("of a host that enrolled", func(c *bootstrapv1.PoolbootConfig) {
			enrolled(c)
			c.Status.Boot.HostChosenTime = nil
		}, map[record.Stage]int{record.StageProvisioning: 6, record.StagePreparing: 4, record.StageServing: 5, record.StageJoining: 6}),
		Entry("of a host whose config server has a clock that is behind", func(c *bootstrapv1.PoolbootConfig) {
			c.Status.Requests.FirstRequestedTime, c.Status.Boot.HostChosenTime = micro(-2), micro(-2)
		},
			map[record.Stage]int{record.StagePending: 0, record.StageWaitingForHost: 0, record.StageProvisioning: 0, record.StagePreparing: 10, record.StageServing: 5, record.StageJoining: 6}),
	)

	It("omits the steps of an earlier attempt, and the data Secret of a host that needs none", func() {
		steps := func(c *bootstrapv1.PoolbootConfig) (taken []record.Step) {
			for _, moment := range record.Moments(c) {
				taken = append(taken, moment.Step)
			}
			return taken
		}
		again := boot(5)
		again.Status.Requests.FirstRequestedTime, again.Status.Requests.RequestedTime = micro(40), micro(44)
		Expect(steps(again)).To(Equal([]record.Step{"Created", "DataSecretCreated", "HostChosen", "BootRequested"}))
		enrolled(again)
		Expect(steps(again)).To(Equal([]record.Step{"Created", "HostChosen", "BootRequested"}))
	})

	DescribeTable("has a message about what the boot waits for",
		func(c *bootstrapv1.PoolbootConfig, message string, more ...metav1.Condition) {
			c.Status.Conditions = append(c.Status.Conditions, more...)
			Expect(outlook.Message(c)).To(ContainSubstring(message))
		},
		Entry("without a host", boot(1), "no host is chosen yet"),
		Entry("for the kubelet", boot(5), "WaitingForKubelet it is"),
		Entry("when the Node is Ready in its pool", boot(6), "NodeReadyInPool it is"),
		Entry("when the condition Ready is false, before all other conditions", boot(5), "Trouble it is", condition(clusterv1.ReadyCondition, "Trouble", metav1.ConditionFalse, 1)),
	)

	It("has a message during a pause that a boot in progress is paused, with the message from before", func() {
		paused := condition(clusterv1.PausedCondition, "Paused", metav1.ConditionTrue, 1)
		for steps, want := range map[int]string{
			1: "Paused: Paused it is. Before: no host is chosen yet", 3: "Paused: Paused it is. Before: DataSecretCreated it is",
			5: "Paused: Paused it is. Before: WaitingForKubelet it is", 6: "NodeReadyInPool it is",
		} {
			c := boot(steps)
			c.Status.Conditions = append(c.Status.Conditions, paused)
			Expect(outlook.Message(c)).To(HavePrefix(want))
		}
		over := boot(5)
		over.Status.Conditions = append(over.Status.Conditions, condition(clusterv1.PausedCondition, "NotPaused", metav1.ConditionFalse, 1))
		Expect(outlook.Message(over)).To(Equal("WaitingForKubelet it is"))
	})
})
