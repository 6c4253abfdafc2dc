package main

import (
	"bytes"
	"maps"
	"os"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/enroll"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// tokenIn reads the Secret of an enrollment token, as the API server stores it.
func tokenIn(document []byte) *corev1.Secret {
	GinkgoHelper()
	secret := &corev1.Secret{}
	Expect(yaml.UnmarshalStrict(document, secret)).To(Succeed())
	secret.Data = map[string][]byte{}
	for key, value := range secret.StringData {
		secret.Data[key] = []byte(value)
	}
	return secret
}

var edgeHosts = []string{"enroll", "edge", "--cluster", "site", "--pool", "infra", "--names", "edge-*", "--uses", "20", "--expires", "24h", "-n", "metal"}

var _ = Describe("enroll", func() {
	It("prints a Secret that admits what was asked for, with a token of its own", func() {
		first, second := tokenIn([]byte(answered(poolboot(edgeHosts...)))), tokenIn([]byte(answered(poolboot(edgeHosts...))))
		spec, err := enroll.Read(first)
		Expect(err).NotTo(HaveOccurred())
		Expect(spec.ExpirationTime.Time).To(BeTemporally("~", time.Now().Add(24*time.Hour), time.Minute))
		spec.ExpirationTime, spec.TokenSHA256 = nil, ""
		Expect(spec).To(Equal(poolv1.EnrollmentSpec{ClusterName: "site", PoolRole: "infra", NamePattern: "edge-*", MaxUses: 20}))
		Expect(first.Type).To(Equal(poolv1.EnrollmentTokenType))
		Expect(first.Namespace).To(Equal("metal"))
		Expect(first.Labels).To(HaveKey("clusterctl.cluster.x-k8s.io/move"))
		Expect(first.Data["token"]).NotTo(Equal(second.Data["token"]))
		Expect(first.Data["token"]).To(HaveLen(43))
	})

	DescribeTable("refuses what no host could enroll with", func(why string, flags ...string) {
		refused(poolboot(append(slices.Clone(edgeHosts), flags...)...), 1, why)
	},
		Entry("a pattern that is none", "names", "--names", "["),
		Entry("no use", "uses", "--uses", "0"),
		Entry("no time", "--expires -1h0m0s: the token would have expired already", "--expires", "-1h"),
		Entry("a role that is none", "role", "--pool", "In/fra"),
	)

	It("is shown in the documentation as it is", func() {
		document, err := os.ReadFile("../../docs/enroll.md")
		Expect(err).NotTo(HaveOccurred())
		shown := 0
		for _, b := range block.FindAllSubmatch(document, -1) {
			if string(b[1]) == "yaml" && bytes.Contains(b[2], []byte("kind: Secret")) {
				_, err := enroll.Read(tokenIn(b[2]))
				Expect(err).NotTo(HaveOccurred())
				shown++
			}
		}
		Expect(shown).To(Equal(1))
	})
})

var _ = Describe("pointer", func() {
	pointing := func(status poolv1.EnrollmentStatus, args ...string) result {
		GinkgoHelper()
		secret := tokenIn([]byte(answered(poolboot(edgeHosts...))))
		published := &poolv1.Enrollment{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "edge"}, Status: status}
		var out, errOut bytes.Buffer
		cmd := newPointer(genericiooptions.IOStreams{Out: &out, ErrOut: &errOut}, storing(nil, secret, published))
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		code := execute(cmd, &errOut, append([]string{"edge", "-n", "metal"}, args...))
		if code == 0 {
			Expect(slices.Collect(maps.Keys(secret.Data))).To(ContainElement("token"))
			Expect(out.Bytes()).To(ContainSubstring(string(secret.Data["token"])))
		}
		return result{code: code, out: out.String(), errOut: errOut.String()}
	}

	It("prints where the host asks, by which token and under which name", func() {
		printed := answered(pointing(poolv1.EnrollmentStatus{URL: "https://poolboot.example.com:9444/config/infra"}, "--host", "edge-7"))
		pointer, err := ignition.ParsePointer([]byte(printed))
		Expect(err).NotTo(HaveOccurred())
		Expect(pointer.URL).To(Equal("https://poolboot.example.com:9444/config/infra?name=edge-7"))
	})

	It("refuses a name that would be refused", func() {
		refused(pointing(poolv1.EnrollmentStatus{URL: "https://poolboot.example.com"}, "--host", "core-7"), 1, "names like edge-*")
	})

	It("says so when the enrollment is not published yet", func() {
		refused(pointing(poolv1.EnrollmentStatus{}, "--host", "edge-7"), 1, "try again")
	})
})
