package assignment_test

import (
	"encoding/json"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

func TestAssignment(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Assignment")
}

func newAssignment() assignment.Assignment {
	return assignment.Assignment{
		Node:    "edge-7",
		Config:  assignment.RenderedConfig{Name: "rendered-infra-1", SHA512: strings.Repeat("a", 128)},
		Machine: json.RawMessage(`{"ignition":{"version":"3.5.0"}}`),
		Policy:  update.DefaultPolicy(), MinReadySeconds: 10, ReadyDeadlineSeconds: 1200,
	}
}

var _ = Describe("A document", func() {
	It("is read with its revision, and has the same bytes for the same assignment", func() {
		first, err := assignment.Encode(newAssignment())
		Expect(err).NotTo(HaveOccurred())
		second, err := assignment.Encode(newAssignment())
		Expect(err).NotTo(HaveOccurred())
		Expect(first).To(Equal(second))
		Expect(assignment.Decode(first, assignment.Revision(first))).To(Equal(newAssignment()))
	})

	It("is refused with any other revision, because a change of any byte is another assignment", func() {
		document, err := assignment.Encode(newAssignment())
		Expect(err).NotTo(HaveOccurred())
		revision := assignment.Revision(document)
		for i := range document {
			changed := append([]byte(nil), document...)
			changed[i] ^= 1
			_, err := assignment.Decode(changed, revision)
			Expect(err).To(MatchError(assignment.ErrOtherRevision))
		}
	})

	It("is not written if it is larger than a Secret can be", func() {
		a := newAssignment()
		a.Force = strings.Repeat("x", assignment.MaxSize)
		_, err := assignment.Encode(a)
		Expect(err).To(MatchError(ContainSubstring("shorten")))
	})

	DescribeTable("is refused if it is incomplete", func(change func(*assignment.Assignment)) {
		a := newAssignment()
		change(&a)
		document, err := json.Marshal(a)
		Expect(err).NotTo(HaveOccurred())
		_, err = assignment.Read(document)
		Expect(err).To(MatchError(ContainSubstring("malformed")))
	},
		Entry("without a Node", func(a *assignment.Assignment) { a.Node = "" }),
		Entry("without a config", func(a *assignment.Assignment) { a.Config.Name = "" }),
		Entry("without the hash of the config", func(a *assignment.Assignment) { a.Config.SHA512 = "" }),
		Entry("without the machine's part", func(a *assignment.Assignment) { a.Machine = json.RawMessage("null") }),
		Entry("without a deadline", func(a *assignment.Assignment) { a.ReadyDeadlineSeconds = 0 }),
		Entry("with a restart of something that this agent does not know", func(a *assignment.Assignment) { a.Restart = &assignment.Restart{ID: "1", Kind: "Firmware"} }),
		Entry("with a negative time", func(a *assignment.Assignment) { a.MinReadySeconds = -1 }),
	)

	It("is refused if something follows it", func() {
		document, err := assignment.Encode(newAssignment())
		Expect(err).NotTo(HaveOccurred())
		_, err = assignment.Read(append(document, "{}"...))
		Expect(err).To(MatchError(ContainSubstring("after it")))
	})
})

var _ = Describe("Settings", func() {
	It("name the URLs of the config server", func() {
		settings, err := assignment.ReadSettings([]byte(`{"server":"https://boot.example:8443/base","namespace":"edge","name":"edge-7","pointerID":"1-2"}`))
		Expect(err).NotTo(HaveOccurred())
		Expect(settings.UpdateURL()).To(Equal("https://boot.example:8443/base/update/edge/edge-7/1-2"))
		Expect(settings.RenderedURL("rendered-infra-1")).To(Equal("https://boot.example:8443/base/rendered/edge/rendered-infra-1?config=edge-7&pointer=1-2"))
		Expect(assignment.AgentURL(settings.Server, "abc")).To(Equal("https://boot.example:8443/base/agent/abc"))
	})

	DescribeTable("are refused", func(raw string) {
		_, err := assignment.ReadSettings([]byte(raw))
		Expect(err).To(MatchError(ContainSubstring(assignment.SettingsPath)))
	},
		Entry("if they are no JSON", "x"),
		Entry("without a server", `{"namespace":"a","name":"b","pointerID":"c"}`),
		Entry("without a pointer ID", `{"server":"https://a","namespace":"a","name":"b"}`),
	)
})

func FuzzRead(f *testing.F) {
	document, err := assignment.Encode(newAssignment())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(document)
	f.Fuzz(func(t *testing.T, raw []byte) {
		a, err := assignment.Read(raw)
		if err == nil && (a.Node == "" || a.ReadyDeadlineSeconds <= 0) {
			t.Errorf("an incomplete assignment was accepted: %q", raw)
		}
	})
}
