package access_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
)

const token = "v1Wq0J2m8T5s7Yd3Kc9RbNfXzLhPgQaE"

// edge returns a valid Enrollment.
func edge() poolv1.EnrollmentSpec {
	return poolv1.EnrollmentSpec{ClusterName: "site", PoolRole: "infra", NamePattern: "edge-*", MaxUses: 20, AddressRanges: []string{"192.0.2.0/24", "2001:db8::/64"}}
}

var _ = Describe("The Secret of an Enrollment", func() {
	secret := func(text string) *corev1.Secret {
		return &corev1.Secret{Type: poolv1.EnrollmentTokenType, Data: map[string][]byte{"token": []byte(text)}}
	}
	It("has its token", func() {
		Expect(access.EnrollmentToken(secret(token))).To(Equal(token))
	})
	It("is refused if it has another type", func() {
		other := secret(token)
		other.Type = corev1.SecretTypeOpaque
		Expect(access.EnrollmentToken(other)).Error().To(MatchError(HavePrefix("type: ")))
	})
	DescribeTable("is refused, with an error that does not contain its data", func(text string) {
		_, err := access.EnrollmentToken(secret(text))
		Expect(err).To(MatchError(HavePrefix("data.token: ")))
		if text != "" {
			Expect(err).NotTo(MatchError(ContainSubstring(text)))
		}
	},
		Entry("a token that can be guessed", "short"),
		Entry("no token", ""),
		Entry("a token that a header cannot contain", strings.Repeat("a b", 20)),
	)
})

var _ = Describe("An Enrollment", func() {
	It("is valid", func() { Expect(access.CheckEnrollment(edge())).To(Succeed()) })

	DescribeTable("is refused, with an error that names the wrong field", func(field string, change func(*poolv1.EnrollmentSpec)) {
		spec := edge()
		change(&spec)
		Expect(access.CheckEnrollment(spec)).To(MatchError(HavePrefix("spec." + field + ": ")))
	},
		Entry("no role", "poolRole", func(s *poolv1.EnrollmentSpec) { s.PoolRole = "" }),
		Entry("a role that is not a label", "poolRole", func(s *poolv1.EnrollmentSpec) { s.PoolRole = "infra/x" }),
		Entry("no pattern", "namePattern", func(s *poolv1.EnrollmentSpec) { s.NamePattern = "" }),
		Entry("an invalid pattern", "namePattern", func(s *poolv1.EnrollmentSpec) { s.NamePattern = "edge-[" }),
		Entry("a pattern for names of the local machine", "namePattern", func(s *poolv1.EnrollmentSpec) { s.NamePattern = "*.localhost" }),
		Entry("a pattern for names of Services", "namePattern", func(s *poolv1.EnrollmentSpec) { s.NamePattern = "*.*.svc" }),
		Entry("the name of the API server", "namePattern", func(s *poolv1.EnrollmentSpec) { s.NamePattern = "kubernetes.default.svc" }),
		Entry("an invalid address range", "addressRanges", func(s *poolv1.EnrollmentSpec) { s.AddressRanges = []string{"192.0.2.7"} }),
		Entry("an address range with every address", "addressRanges", func(s *poolv1.EnrollmentSpec) { s.AddressRanges = []string{"0.0.0.0/0"} }),
		Entry("an address range with host bits", "addressRanges", func(s *poolv1.EnrollmentSpec) { s.AddressRanges = []string{"192.0.2.7/24"} }),
		Entry("too many address ranges", "addressRanges", func(s *poolv1.EnrollmentSpec) { s.AddressRanges = slices.Repeat(s.AddressRanges, 17) }),
		Entry("no uses", "maxUses", func(s *poolv1.EnrollmentSpec) { s.MaxUses = 0 }),
		Entry("more uses than one object can list", "maxUses", func(s *poolv1.EnrollmentSpec) { s.MaxUses = 1001 }),
	)

	It("admits addresses in its address ranges", func() {
		ranges := edge().AddressRanges
		Expect(access.InRanges(ranges, netip.MustParseAddr("::ffff:192.0.2.200"))).To(BeTrue())
		Expect(access.InRanges(ranges, netip.MustParseAddr("192.0.3.1"))).To(BeFalse())
		Expect(access.InRanges(nil, netip.MustParseAddr("192.0.2.1"))).To(BeFalse())
	})
})

var _ = Describe("A name", func() {
	DescribeTable("is allowed", func(pattern, name string) { Expect(access.CheckName(pattern, name)).To(BeEmpty()) },
		Entry(nil, "edge-*", "edge-7"),
		Entry(nil, "edge-??", "edge-07"),
		Entry(nil, "rack[1-3]-*", "rack2-u12"),
		Entry(nil, "edge-7", "edge-7"),
		Entry(nil, "*", "edge.example.com"),
	)
	DescribeTable("is not allowed", func(pattern, name, why string) {
		Expect(access.CheckName(pattern, name)).To(ContainSubstring(why))
	},
		Entry("that does not match the pattern", "edge-*", "core-7", "names like edge-*"),
		Entry("with a prefix", "edge-*", "my-edge-7", "names like"),
		Entry("that is empty", "*", "", "name of a Node"),
		Entry("that is not a DNS name", "*", "Edge_7", "name of a Node"),
		Entry("that is longer than a label value", "*", strings.Repeat("e", 64), "name of a Node"),
		Entry("that is a path", "*", "../x", "name of a Node"),
	)
})

var _ = Describe("The pointer ID of an enrolled host", func() {
	It("differs for every namespace, Enrollment and name, and is valid in a URL and a label", func() {
		ids := map[string]bool{}
		for _, of := range [][3]string{{"a", "b", "c"}, {"a", "b", "d"}, {"a", "c", "c"}, {"b", "b", "c"}} {
			id := access.PointerID(of[0], of[1], of[2])
			Expect(id).To(Equal(access.PointerID(of[0], of[1], of[2])))
			Expect(validation.IsDNS1123Label(id)).To(BeEmpty())
			ids[id] = true
		}
		Expect(ids).To(HaveLen(4))
	})
})

// FuzzAllows checks that every allowed name is a valid Node name, for any pattern.
func FuzzAllows(f *testing.F) {
	f.Add("edge-*", "edge-7")
	f.Add("[", "")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if access.CheckPattern(pattern) == nil && access.CheckName(pattern, name) == "" && len(validation.IsDNS1123Subdomain(name)) > 0 {
			t.Fatalf("%q may be taken", name)
		}
	})
}
