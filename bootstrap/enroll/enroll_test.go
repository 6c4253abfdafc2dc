package enroll_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/enroll"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hostaccess"
)

func TestEnroll(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "enroll")
}

const token = "v1Wq0J2m8T5s7Yd3Kc9RbNfXzLhPgQaE"

// edge is a Secret that has all that it needs, changed by a key.
func edge(change ...string) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "edge", UID: "uid", Labels: map[string]string{"cluster.x-k8s.io/cluster-name": "site"}},
		Data: map[string][]byte{
			"token": []byte(token), "role": []byte("infra"), "names": []byte("edge-*"), "uses": []byte("20"), "expires": []byte("2030-01-02T03:04:05Z"),
		},
	}
	if len(change) > 0 {
		secret.Data[change[0]] = []byte(change[1])
	}
	return secret
}

var _ = Describe("an enrollment token's Secret", func() {
	It("says what the token admits, and keeps the token itself", func() {
		spec, err := enroll.Read(edge())
		Expect(err).NotTo(HaveOccurred())
		Expect(spec.ClusterName).To(Equal("site"))
		Expect(spec.PoolRole).To(Equal("infra"))
		Expect(spec.NamePattern).To(Equal("edge-*"))
		Expect(spec.MaxUses).To(BeEquivalentTo(20))
		Expect(spec.ExpirationTime.UTC()).To(Equal(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)))
		Expect(spec.TokenSHA256).To(Equal(hostaccess.Enrollment(types.NamespacedName{Namespace: "metal", Name: "edge"}, "uid").Hash(token)))
		Expect(spec.SecretUID).To(BeEquivalentTo("uid"))
		Expect(fmt.Sprint(spec)).NotTo(ContainSubstring(token))
	})

	It("names the address ranges of the hosts", func() {
		spec, err := enroll.Read(edge("addressRanges", "192.0.2.9/24, 2001:db8::/64,192.0.2.0/24"))
		Expect(err).NotTo(HaveOccurred())
		Expect(spec.AddressRanges).To(Equal([]string{"192.0.2.0/24", "2001:db8::/64"}))
		Expect(enroll.InRanges(spec.AddressRanges, netip.MustParseAddr("::ffff:192.0.2.200"))).To(BeTrue())
		Expect(enroll.InRanges(spec.AddressRanges, netip.MustParseAddr("192.0.3.1"))).To(BeFalse())
		Expect(enroll.InRanges(nil, netip.MustParseAddr("192.0.2.1"))).To(BeFalse())
	})

	DescribeTable("is refused, by the key that is wrong",
		func(key, value string) {
			spec, err := enroll.Read(edge(key, value))
			Expect(err).To(MatchError(HavePrefix("data." + key + ": ")))
			Expect(spec.TokenSHA256).To(BeEmpty())
			if key == "token" && value != "" {
				Expect(err).NotTo(MatchError(ContainSubstring(value)))
			}
		},
		Entry("a token that can be guessed", "token", "short"),
		Entry("no token", "token", ""),
		Entry("a token that no header can carry", "token", strings.Repeat("a b", 20)),
		Entry("no role", "role", ""),
		Entry("a role that is no label", "role", "infra/x"),
		Entry("no pattern, which would be every name", "names", ""),
		Entry("a pattern that is none", "names", "edge-["),
		Entry("a pattern of names that are the machine itself", "names", "*.localhost"),
		Entry("a pattern of names of Services", "names", "*.*.svc"),
		Entry("the API server's name", "names", "kubernetes.default.svc"),
		Entry("address ranges that are none", "addressRanges", "192.0.2.7"),
		Entry("an address range that is every address", "addressRanges", "2001:db8::/32, 0.0.0.0/0"),
		Entry("no uses", "uses", "0"),
		Entry("more uses than one object can list", "uses", "1001"),
		Entry("uses without a number", "uses", "some"),
		Entry("an expiry that is no time", "expires", "24h"),
	)
})

var _ = Describe("a name", func() {
	DescribeTable("may be taken", func(pattern, name string) { Expect(enroll.Allows(pattern, name)).To(BeEmpty()) },
		Entry(nil, "edge-*", "edge-7"),
		Entry(nil, "edge-??", "edge-07"),
		Entry(nil, "rack[1-3]-*", "rack2-u12"),
		Entry(nil, "edge-7", "edge-7"),
		Entry(nil, "*", "edge.example.com"),
	)
	DescribeTable("may not be taken", func(pattern, name, why string) {
		Expect(enroll.Allows(pattern, name)).To(ContainSubstring(why))
	},
		Entry("of another pattern", "edge-*", "core-7", "names like edge-*"),
		Entry("with more in front", "edge-*", "my-edge-7", "names like"),
		Entry("that is empty", "*", "", "name of a Node"),
		Entry("that is no DNS name", "*", "Edge_7", "name of a Node"),
		Entry("that is longer than a label's value", "*", strings.Repeat("e", 64), "name of a Node"),
		Entry("that leads elsewhere", "*", "../x", "name of a Node"),
	)
})

var _ = Describe("the pointer id of an enrolled host", func() {
	It("is one for every namespace, enrollment and name, and fits into a URL and a label", func() {
		ids := map[string]bool{}
		for _, of := range [][3]string{{"a", "b", "c"}, {"a", "b", "d"}, {"a", "c", "c"}, {"b", "b", "c"}} {
			id := enroll.PointerID(of[0], of[1], of[2])
			Expect(id).To(Equal(enroll.PointerID(of[0], of[1], of[2])))
			Expect(validation.IsDNS1123Label(id)).To(BeEmpty())
			ids[id] = true
		}
		Expect(ids).To(HaveLen(4))
	})
})

// FuzzRead: whatever a Secret holds, what is read of it can be published, and the token can't be read back.
func FuzzRead(f *testing.F) {
	f.Add(token, "infra", "edge-*", "20", "2030-01-02T03:04:05Z", "edge-7")
	f.Add("", "", "[", "-1", "now", "")
	f.Fuzz(func(t *testing.T, token, role, names, uses, expires, name string) {
		secret := edge()
		for key, value := range map[string]string{"token": token, "role": role, "names": names, "uses": uses, "expires": expires} {
			secret.Data[key] = []byte(value)
		}
		spec, err := enroll.Read(secret)
		if err != nil {
			if spec.TokenSHA256 != "" {
				t.Fatal("a Secret that is refused admits hosts")
			}
			return
		}
		if spec.MaxUses < 1 || spec.MaxUses > enroll.MaxUses || len(token) < 32 || spec.ExpirationTime == nil {
			t.Fatalf("%+v", spec)
		}
		if enroll.Allows(spec.NamePattern, name) == "" && len(validation.IsDNS1123Subdomain(name)) > 0 {
			t.Fatalf("%q may be taken", name)
		}
	})
}
