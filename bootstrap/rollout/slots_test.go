package rollout_test

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

var revision = strings.Repeat("a", 64)

// hostWith returns a host whose Node has annotations. recorded is the slot in its record.
func hostWith(recorded string, annotations map[string]string) *rollout.Host {
	config := &bootstrapv1.PoolbootConfig{}
	config.Name = "host"
	config.Status.Update.Slot, config.Status.Update.DesiredRevision = recorded, revision
	if annotations == nil {
		return rollout.HostOf(nil, config, nil, nil)
	}
	config.Status.NodeRef.UID = "uid"
	annotations[agentv1.ReportVersionAnnotation] = "1"
	return rollout.HostOf(nil, config, nil, &corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: "uid", Annotations: annotations}})
}

// reports returns the annotations of a Node that was told to have the revision by a slot.
func reports(slot string, state agentv1.State, more ...string) map[string]string {
	annotations := map[string]string{
		agentv1.DesiredAnnotation: revision, agentv1.TargetAnnotation: revision, agentv1.StateAnnotation: string(state), agentv1.SlotAnnotation: slot,
	}
	if state == agentv1.Done {
		annotations[agentv1.CurrentAnnotation] = revision
	}
	for _, key := range more {
		annotations[key] = "true"
	}
	return annotations
}

var _ = DescribeTable("A slot", func(slots []poolv1.UpdateSlot, h *rollout.Host, want ...string) {
	var hosts []*rollout.Host
	if h != nil {
		hosts = append(hosts, h)
	}
	kept := rollout.KeepSlots(slots, hosts, sets.New("left", "host"))
	ids := []string{}
	for _, slot := range kept {
		ids = append(ids, slot.ID)
	}
	Expect(ids).To(HaveExactElements(want))
},
	Entry("stays while its host was not told yet", slots("host", "1"), hostWith("", reports("", agentv1.Done)), "1"),
	Entry("stays while its host was told by an earlier one, and is done with that", slots("host", "2"), hostWith("1", reports("1", agentv1.Done)), "2"),
	Entry("stays while its host is updated", slots("host", "1"), hostWith("1", reports("1", agentv1.Applying)), "1"),
	Entry("stays while its host reports nothing", slots("host", "1"), hostWith("1", reports("1", "")), "1"),
	Entry("stays if the update of its host failed", slots("host", "1"), hostWith("1", reports("1", agentv1.Degraded)), "1"),
	Entry("stays while the Node does not exist", slots("host", "1"), hostWith("1", nil), "1"),
	Entry("stays while the Node is cordoned for the update", slots("host", "1"), hostWith("1", reports("1", agentv1.Done, agentv1.CordonedAnnotation)), "1"),
	Entry("stays until the manager has ended the update", slots("host", "1"), hostWith("1", reports("1", agentv1.Done, agentv1.BegunAnnotation)), "1"),
	Entry("is free when its host is done with it", slots("host", "1"), hostWith("1", reports("1", agentv1.Done))),
	Entry("is free when its host has left the pool", slots("left", "1"), nil),
	Entry("stays while its host is in no pool", slots("present", "1"), nil, "1"),
	Entry("is one for each host, also if a user edits the list", append(slots("host", "1"), slots("host", "2")...), hostWith("1", reports("1", agentv1.Applying)), "1"),
	Entry("that is lost is that of the record", nil, hostWith("1", reports("", agentv1.Done)), "1"),
	Entry("that is lost is that of the record also without a Node", nil, hostWith("1", nil), "1"),
	Entry("that is lost is that of the Node if the record is lost", nil, hostWith("", reports("1", agentv1.Applying, agentv1.BegunAnnotation)), "1"),
	Entry("that is lost is that of a Node which is cordoned for the update", nil, hostWith("", reports("1", agentv1.Done, agentv1.CordonedAnnotation)), "1"),
	Entry("that is lost is that of a host whose update failed", nil, hostWith("", reports("1", agentv1.Degraded)), "1"),
	Entry("is not given to a host that only claims to be in an update", nil, hostWith("", reports("", agentv1.Applying))),
	Entry("is not given to a host that claims it again after its update", nil, hostWith("", reports("1", agentv1.Applying))),
)

func slots(host, id string) []poolv1.UpdateSlot {
	return []poolv1.UpdateSlot{{ID: id, Host: host, Revision: revision}}
}

var _ = DescribeTable("A host with a slot", func(h *rollout.Host, want rollout.Progress) {
	c := h.ForRollout(&poolv1.MachineConfigPool{}, "target", &slots("host", "2")[0], rollout.Hold{})
	Expect(c).To(And(HaveField("HasSlot", true), HaveField("Desired", revision), HaveField("Progress", want)))
},
	Entry("that was not told yet counts as in an update", hostWith("2", reports("1", agentv1.Done)), rollout.InUpdate),
	Entry("whose Node does not exist, too", hostWith("2", nil), rollout.InUpdate),
	Entry("that was told has the progress that it reports", hostWith("2", reports("2", agentv1.Degraded)), rollout.Failed),
	Entry("that is done and still cordoned counts as one that reports nothing", hostWith("2", reports("2", agentv1.Done, agentv1.CordonedAnnotation)), rollout.Unknown),
)

var _ = DescribeTable("Slots are taken", func(open *metav1.Time, wantWait time.Duration, wantBuilt bool) {
	p := &poolv1.MachineConfigPool{}
	p.Status.SlotsOpenTime = open
	wait, isBuilt := rollout.SlotsOpenIn(p, start)
	Expect(isBuilt).To(Equal(wantBuilt))
	if isBuilt {
		Expect(wait).To(Equal(wantWait))
	}
},
	Entry("not before the list was built", nil, time.Duration(0), false),
	Entry("not in the pause after that", &metav1.Time{Time: start.Add(5 * time.Second)}, 5*time.Second, true),
	Entry("from the end of the pause on", &metav1.Time{Time: start}, time.Duration(0), true),
	Entry("not if somebody has set a time of the far future, so the list is built again", &metav1.Time{Time: start.Add(time.Hour)}, time.Duration(0), false),
)

var _ = It("A pool has no more slots than the API allows", func() {
	var many []poolv1.UpdateSlot
	for i := range rollout.MaxSlots + 10 {
		name := strings.Repeat("x", 1+i%200) + string(rune('a'+i/200))
		many = append(many, slots(name, "1")...)
	}
	Expect(rollout.KeepSlots(many, nil, nil)).To(HaveLen(rollout.MaxSlots))
})
