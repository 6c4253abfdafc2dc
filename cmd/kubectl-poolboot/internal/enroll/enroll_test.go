package enroll

import (
	"bytes"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

// printedBy reads a Secret, as the API server stores it, and the Enrollment after it.
func parseObjects(document []byte) (*corev1.Secret, *poolv1.Enrollment) {
	GinkgoHelper()
	secret, admits := &corev1.Secret{}, &poolv1.Enrollment{}
	first, second, separated := bytes.Cut(document, []byte("\n---\n"))
	Expect(separated).To(BeTrue())
	Expect(yaml.UnmarshalStrict(first, secret)).To(Succeed())
	Expect(yaml.UnmarshalStrict(second, admits)).To(Succeed())
	secret.Data = map[string][]byte{}
	for key, value := range secret.StringData {
		secret.Data[key] = []byte(value)
	}
	return secret, admits
}

var edgeHosts = []string{"enroll", "edge", "--cluster", "site", "--pool", "infra", "--name-pattern", "edge-*", "--max-uses", "20", "--expires-in", "24h", "-n", "metal"}

var _ = Describe("enroll", func() {
	It("prints an Enrollment with the values of the flags, and a Secret with a new token", func() {
		first, admits := parseObjects([]byte(clitest.ExpectSuccess(runPoolboot(edgeHosts...))))
		second, _ := parseObjects([]byte(clitest.ExpectSuccess(runPoolboot(edgeHosts...))))
		Expect(admits.Spec.ExpirationTime.Time).To(BeTemporally("~", time.Now().Add(24*time.Hour), time.Minute))
		admits.Spec.ExpirationTime = metav1.Time{}
		Expect(admits.Spec).To(Equal(poolv1.EnrollmentSpec{ClusterName: "site", PoolRole: "infra", NamePattern: "edge-*", MaxUses: 20,
			TokenSecretRef: poolv1.TokenSecretReference{Name: "edge"}}))
		Expect([]string{admits.Namespace, admits.Name}).To(Equal([]string{"metal", "edge"}))
		Expect(first.Type).To(Equal(poolv1.EnrollmentTokenType))
		Expect([]string{first.Namespace, first.Name}).To(Equal([]string{"metal", "edge"}))
		Expect(first.Labels).To(HaveKey("clusterctl.cluster.x-k8s.io/move"))
		Expect(first.Data).To(HaveLen(1))
		Expect(first.Data["token"]).NotTo(Equal(second.Data["token"]))
		Expect(first.Data["token"]).To(HaveLen(43))
	})

	DescribeTable("refuses values with which no host could enroll, and names their flags", func(why string, flags ...string) {
		clitest.ExpectError(runPoolboot(append(slices.Clone(edgeHosts), flags...)...), 1, why)
	},
		Entry("an invalid pattern", "--name-pattern (spec.namePattern): ", "--name-pattern", "["),
		Entry("no uses", "--max-uses (spec.maxUses): ", "--max-uses", "0"),
		Entry("a token that is expired already", "--expires-in 0s: the token would be expired already", "--expires-in", "0s"),
		Entry("an invalid role", "--pool (spec.poolRole): ", "--pool", "In/fra"),
		Entry("a range of every address", "--address-ranges (spec.addressRanges): ", "--address-ranges", "::/0"),
	)

	DescribeTable("warns that no host is admitted yet when it can read the cluster", func(warning string, change func(*poolv1.MachineConfigPool)) {
		p := &poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "a-pool"},
			Spec: poolv1.MachineConfigPoolSpec{ClusterName: "site", PoolRole: "infra", Hosts: poolv1.HostSettings{TemplateRef: poolv1.HostTemplateReference{Name: "hosts"}}}}
		change(p)
		r := clitest.RunOn(clitest.NewFakeConnection(nil, p), New, edgeHosts...)
		Expect(r.Code).To(BeZero())
		parseObjects([]byte(r.Out))
		if warning == "" {
			Expect(r.ErrOut).To(BeEmpty())
		} else {
			Expect(r.ErrOut).To(And(HavePrefix("warning: "), ContainSubstring(warning)))
		}
	},
		Entry("not when the pool admits hosts", "", func(*poolv1.MachineConfigPool) {}),
		Entry("the pool admits only Machines", "MachineConfigPool a-pool admits only Machines", func(p *poolv1.MachineConfigPool) { p.Spec.Hosts.TemplateRef.Name = "" }),
		Entry("no such pool", "--cluster site: ", func(p *poolv1.MachineConfigPool) { p.Spec.PoolRole = "gpu" }),
		Entry("a pool of another Cluster does not count", "--cluster site: ", func(p *poolv1.MachineConfigPool) { p.Spec.ClusterName = "another" }),
	)

	It("prints what the documentation shows", func() {
		shown := 0
		for _, b := range clitest.ReadBlocks(sourcetree.Path("docs", "enroll.md")) {
			if b.Language == "yaml" && strings.Contains(b.Text, "kind: Secret") {
				secret, admits := parseObjects([]byte(b.Text))
				Expect(access.EnrollmentToken(secret)).Error().To(HaveOccurred(), "a published token must not be valid")
				Expect(access.CheckEnrollment(admits.Spec)).To(Succeed())
				Expect(admits.Spec.TokenSecretRef.Name).To(Equal(secret.Name))
				shown++
			}
		}
		Expect(shown).To(Equal(1))
	})
})

var _ = Describe("pointer", func() {
	pointing := func(status poolv1.EnrollmentStatus, args ...string) clitest.Result {
		GinkgoHelper()
		secret, admits := parseObjects([]byte(clitest.ExpectSuccess(runPoolboot(edgeHosts...))))
		admits.Status = status
		secret.Name, admits.Spec.TokenSecretRef.Name = "edge-token", "edge-token"
		r := clitest.RunOn(clitest.NewFakeConnection(nil, secret, admits), NewPointer, append([]string{"pointer", "edge", "-n", "metal"}, args...)...)
		if r.Code == 0 {
			Expect(r.Out).To(ContainSubstring(string(secret.Data["token"])))
		}
		return r
	}

	It("prints the URL, the token and the name of the host", func() {
		printed := clitest.ExpectSuccess(pointing(poolv1.EnrollmentStatus{URL: "https://poolboot.example.com:9444/config/infra"}, "--host", "edge-7"))
		pointer, err := ignition.ParsePointer([]byte(printed))
		Expect(err).NotTo(HaveOccurred())
		Expect(pointer.URL).To(Equal("https://poolboot.example.com:9444/config/infra?name=edge-7"))
	})

	It("refuses a name that the Enrollment does not admit", func() {
		clitest.ExpectError(pointing(poolv1.EnrollmentStatus{URL: "https://poolboot.example.com"}, "--host", "core-7"), 1, "names like edge-*")
	})

	It("reports an Enrollment that does not exist", func() {
		r := clitest.RunOn(clitest.NewFakeConnection(nil), NewPointer, "pointer", "edge", "--host", "edge-7", "-n", "metal")
		clitest.ExpectError(r, 1, "Enrollment metal/edge", "not found: correct the name, or set --namespace")
	})

	It("reports that the Enrollment has no URL yet", func() {
		clitest.ExpectError(pointing(poolv1.EnrollmentStatus{}, "--host", "edge-7"), 1, "retry")
	})
})
