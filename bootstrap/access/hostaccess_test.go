package access_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

func recordedToken(annotations map[string]string) record.Token {
	return record.TokenOf(&bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}})
}

var _ = Describe("The hash of a token", func() {
	name := types.NamespacedName{Namespace: "metal", Name: "infra-x7k"}
	owner := access.Config(name, "uid")
	token := access.NewToken()

	It("accepts only the token", func() {
		Expect(owner.Hash(token)).To(MatchRegexp("^[0-9a-f]{64}$"))
		Expect(owner.Accepts(owner.Hash(token), token)).To(BeTrue())
		Expect(owner.Accepts(owner.Hash(token), access.NewToken())).To(BeFalse())
		Expect(owner.Accepts(owner.Hash(""), "")).To(BeFalse())
	})

	DescribeTable("does not accept the token for", func(other access.Owner) {
		Expect(other.Accepts(owner.Hash(token), token)).To(BeFalse())
	},
		Entry("another namespace", access.Config(types.NamespacedName{Namespace: "other", Name: name.Name}, "uid")),
		Entry("another name", access.Config(types.NamespacedName{Namespace: name.Namespace, Name: "other"}, "uid")),
		Entry("a later object with the same name", access.Config(name, "uid2")),
		Entry("an Enrollment with the same name", access.Enrollment(name, "uid")),
		Entry("an owner whose text is similar", access.Config(types.NamespacedName{Namespace: name.Namespace}, types.UID(name.Name+"/uid"))),
	)

	DescribeTable("accepts no token if it is invalid", func(hash string) { Expect(owner.Accepts(hash, token)).To(BeFalse()) },
		Entry("because it is empty", ""), Entry("because it is a state", string(bootstrapv1.TokenStateRevoked)),
		Entry("because it is too short", owner.Hash(token)[1:]), Entry("because it is not hexadecimal", "x"+owner.Hash(token)[1:]),
	)

	It("is bound again to the object that replaces its owner, if the token is presented", func() {
		moved := access.Config(name, "after the move")
		recorded := recordedToken(owner.Annotations(token))
		Expect(moved.Rebind(recorded, token)).To(Equal(moved.Annotations(token)))
		recorded.State = bootstrapv1.TokenStateExpired
		Expect(moved.Rebind(recorded, token)).NotTo(HaveKey(bootstrapv1.TokenStateAnnotation), "it stays as it is")
	})

	DescribeTable("is not bound again", func(to access.Owner, change func(*record.Token), with string) {
		recorded := recordedToken(owner.Annotations(token))
		change(&recorded)
		Expect(to.Rebind(recorded, with)).To(BeNil())
	},
		Entry("to a copy with another name, even with the token", access.Config(types.NamespacedName{Namespace: "metal", Name: "copy"}, "copy"), func(*record.Token) {}, token),
		Entry("to a copy in another namespace, even with the token", access.Config(types.NamespacedName{Namespace: "other", Name: name.Name}, "copy"), func(*record.Token) {}, token),
		Entry("with another token", access.Config(name, "later"), func(*record.Token) {}, access.NewToken()),
		Entry("if it is bound to another UID", access.Config(name, "later"), func(r *record.Token) { r.UID = "other" }, token),
		Entry("after it was revoked", access.Config(name, "later"), func(r *record.Token) {
			*r = record.Token{UID: r.UID, State: bootstrapv1.TokenStateRevoked}
		}, token),
		Entry("if nothing is on record", access.Config(name, "later"), func(r *record.Token) { *r = record.Token{} }, token),
	)
})

var _ = Describe("The URL in a pointer", func() {
	address := access.Address{Role: "infra", NamespacedName: types.NamespacedName{Namespace: "metal", Name: "rack1.u12"}, PointerID: "5b1e0a5c"}

	It("names the pool for information and the PoolbootConfig for the config server", func() {
		Expect(address.URL("https://poolboot.example.com:9444")).To(Equal("https://poolboot.example.com:9444/config/infra/metal/rack1.u12/5b1e0a5c"))
		Expect(access.ParseURL(address.URL("https://poolboot.example.com:9444"))).To(Equal(address))
	})

	DescribeTable("is refused", func(pointer string) {
		_, err := access.ParseURL(pointer)
		Expect(err).To(HaveOccurred())
	},
		Entry("without a namespace and a name", "https://poolboot.example.com/config/infra/5b1e0a5c"),
		Entry("without a pointer ID", "https://poolboot.example.com/config/infra/metal/rack1/"),
		Entry("without a path", "https://poolboot.example.com"),
		Entry("if it is not a URL", "%"),
	)

	It("of an Enrollment lacks only the name that the host requests", func() {
		Expect(access.EnrollmentURL("https://poolboot.example.com", "infra", types.NamespacedName{Namespace: "metal", Name: "edge"})).
			To(Equal("https://poolboot.example.com/config/infra/metal/edge"))
	})
})
