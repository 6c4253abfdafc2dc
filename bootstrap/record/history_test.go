package record_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// poolWith returns a pool with the annotation about what it handed out.
func poolWith(value string) *poolv1.MachineConfigPool {
	return &poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "infra", Annotations: map[string]string{poolv1.HandedOutAnnotation: value}}}
}

var _ = Describe("The history of a host in its annotation", func() {
	at := func(seconds int64) *metav1.Time { return new(metav1.Unix(1_800_000_000+seconds, 0)) }
	update := func(message string) bootstrapv1.HostUpdate {
		return bootstrapv1.HostUpdate{Configuration: "rendered-infra-0", StartTime: at(0), CompletionTime: at(1), Result: bootstrapv1.UpdateResultDegraded, Effect: "Reboot", Message: message,
			Stages: []bootstrapv1.UpdateStageDuration{{Stage: bootstrapv1.UpdateDraining, Seconds: 12}}}
	}

	It("has the updates that have ended", func() {
		open := update("")
		open.CompletionTime, open.Result = nil, ""
		ended := []bootstrapv1.HostUpdate{update("web.service: it <failed> & \"ended\""), update("")}
		Expect(record.DecodeUpdates(record.EncodeUpdates(append(ended[:2:2], open)))).To(BeComparableTo(ended))
		Expect(record.EncodeUpdates([]bootstrapv1.HostUpdate{open})).To(BeEmpty())
	})

	It("has the beginnings of messages, and is so short that it is read, whatever they are", func() {
		var history []bootstrapv1.HostUpdate
		for range bootstrapv1.MaxUpdateHistory {
			u := update(strings.Repeat("\\\"", 512))
			u.Configuration = strings.Repeat("a", 253)
			history = append(history, u)
		}
		value := record.EncodeUpdates(history)
		read := record.DecodeUpdates(value)
		Expect(read).To(And(HaveLen(bootstrapv1.MaxUpdateHistory), HaveEach(HaveField("Message", WithTransform(func(s string) int { return len(s) }, BeNumerically("<=", 256))))))
		Expect(record.EncodeUpdates(read)).To(Equal(value), "otherwise it would be written again")
	})

	DescribeTable("is not read if an entry has", func(change func(u *bootstrapv1.HostUpdate)) {
		u := update("")
		change(&u)
		raw, err := json.Marshal([]bootstrapv1.HostUpdate{u, update("")})
		Expect(err).NotTo(HaveOccurred())
		Expect(record.DecodeUpdates(string(raw))).To(HaveLen(1))
	},
		Entry("no config", func(u *bootstrapv1.HostUpdate) { u.Configuration = "" }),
		Entry("no name", func(u *bootstrapv1.HostUpdate) { u.Configuration = "../a" }),
		Entry("no end", func(u *bootstrapv1.HostUpdate) { u.CompletionTime = nil }),
		Entry("no start", func(u *bootstrapv1.HostUpdate) { u.StartTime = nil }),
		Entry("a year that can't be written", func(u *bootstrapv1.HostUpdate) {
			u.StartTime = &metav1.Time{Time: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)}
		}),
		Entry("another result", func(u *bootstrapv1.HostUpdate) { u.Result = "Fine" }),
		Entry("another effect", func(u *bootstrapv1.HostUpdate) { u.Effect = "Replace" }),
		Entry("another stage", func(u *bootstrapv1.HostUpdate) { u.Stages[0].Stage = "Waiting" }),
		Entry("a stage twice", func(u *bootstrapv1.HostUpdate) { u.Stages = append(u.Stages, u.Stages...) }),
		Entry("a stage of no time", func(u *bootstrapv1.HostUpdate) { u.Stages[0].Seconds = 0 }),
	)

	It("is empty for what is no such value", func() {
		for _, value := range []string{"", "{", "[]", "[null]", `[{"configuration":1}]`, strings.Repeat(" ", 20000) + "[]"} {
			Expect(record.DecodeUpdates(value)).To(BeEmpty(), value)
		}
	})
})

var _ = Describe("The history of a pool in its annotation", func() {
	It("has the names and times", func() {
		p := poolWith("")
		for i := range poolv1.MaxHistory {
			p.Status.History = append(p.Status.History, poolv1.HandedOutConfiguration{Name: "rendered-infra-" + strings.Repeat("a", 32), StartTime: new(metav1.Unix(1_800_000_000+int64(i), 0))})
		}
		value := record.EncodeHandedOut(p)
		Expect(len(value)).To(BeNumerically("<", 1200))
		read := poolWith(value)
		read.Status.History = record.DecodeHandedOut(read)
		Expect(read.Status.History).To(HaveLen(poolv1.MaxHistory))
		Expect(record.EncodeHandedOut(read)).To(Equal(value))
	})

	It("is read as far as it is valid", func() {
		Expect(record.DecodeHandedOut(poolWith("0=2026-12-01T00:00:00Z,x,=2026-12-01T00:00:00Z,A=2026-12-01T00:00:00Z,1=now,2=2026-12-01T01:00:00+01:00"))).To(HaveExactElements(
			HaveField("Name", "rendered-infra-0"), HaveField("Name", "rendered-infra-2")))
		Expect(record.DecodeHandedOut(poolWith(strings.Repeat("0=2026-12-01T00:00:00Z,", 100)))).To(HaveLen(poolv1.MaxHistory))
		Expect(record.DecodeHandedOut(poolWith(strings.Repeat("0=2026-12-01T00:00:00Z,", 1000)))).To(BeEmpty())
		Expect(record.DecodeHandedOut(&poolv1.MachineConfigPool{})).To(BeEmpty())
	})
})

// FuzzHistory checks that what is read from annotations, whoever wrote them, can be written in a status, and is the
// same after that.
func FuzzHistory(f *testing.F) {
	f.Add(`[{"configuration":"a","startTime":"2026-12-01T00:00:00Z","completionTime":"2026-12-01T00:00:00Z","result":"Done","stages":[{"stage":"Draining","seconds":1}],"message":"a"}]`)
	f.Add("0=2026-12-01T00:00:00Z,1=9999-12-31T23:59:59-12:00")
	f.Fuzz(func(t *testing.T, value string) {
		history := record.DecodeUpdates(value)
		if again := record.DecodeUpdates(record.EncodeUpdates(history)); len(history) > bootstrapv1.MaxUpdateHistory || !equality.Semantic.DeepEqual(history, again) {
			t.Errorf("%+v is read as %+v", history, again)
		}
		p := poolWith(value)
		p.Status.History = record.DecodeHandedOut(p)
		read := record.DecodeHandedOut(poolWith(record.EncodeHandedOut(p)))
		if len(read) > poolv1.MaxHistory || !equality.Semantic.DeepEqual(p.Status.History, read) {
			t.Errorf("%+v is read as %+v", p.Status.History, read)
		}
		for _, h := range read {
			if len(validation.IsDNS1123Subdomain(h.Name)) > 0 {
				t.Errorf("%q is no name", h.Name)
			}
		}
	})
}
