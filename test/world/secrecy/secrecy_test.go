package secrecy

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestSecrecy(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Secrecy")
}

var _ = Describe("A secret", func() {
	const secret = "abcdef0123456789"
	var w *Watch
	BeforeEach(func() {
		w = &Watch{dir: GinkgoT().TempDir(), secrets: map[string]string{}, users: map[string]string{}}
		w.AddSecret("the token", secret)
	})
	leaks := func() []string {
		GinkgoHelper()
		report, err := w.Leaks()
		Expect(err).NotTo(HaveOccurred())
		Expect(report.Files).NotTo(BeEmpty())
		return report.Leaks
	}

	DescribeTable("is found", func(text string) {
		w.Record("a-program", "before\n"+text+"\nafter")
		Expect(leaks()).To(ConsistOf(HavePrefix("output-of-a-program.log has the token")))
	},
		Entry("in plain", "Bearer "+secret+"."),
		Entry("in base64", base64.StdEncoding.EncodeToString([]byte(secret))),
		Entry("in base64 after one character", base64.StdEncoding.EncodeToString([]byte("x"+secret+"y"))),
		Entry("in base64 after two", base64.StdEncoding.EncodeToString([]byte("xx"+secret+"y"))),
		Entry("in base64 for URLs", base64.RawURLEncoding.EncodeToString([]byte("xxx"+secret+"yy"))),
	)

	It("is not found in a text without it", func() {
		w.Record("a-program", secret[1:]+" "+base64.StdEncoding.EncodeToString([]byte(secret[1:])))
		Expect(leaks()).To(BeEmpty())
	})

	It("is found in the log of a host, and a user's secret everywhere except in MachineConfigs", func() {
		w.AddUserSecret("the file", "a user's own")
		host := filepath.Join(w.dir, "host-1")
		Expect(os.Mkdir(host, 0o700)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(host, "console.log"), []byte(secret+" a user's own"), 0o600)).To(Succeed())
		w.Record("management-machineconfigs", "a user's own")
		Expect(leaks()).To(ConsistOf(HavePrefix("host-1/console.log has the token"), HavePrefix("host-1/console.log has the file")))
	})

	It("is found by any line of a key, but not by its header", func() {
		w.AddSecret("the key", "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEfirst\nsecondline9876\n-----END EC PRIVATE KEY-----\n")
		w.Record("a-program", "-----BEGIN EC PRIVATE KEY-----\n")
		Expect(leaks()).To(BeEmpty())
		w.Record("a-program", "> secondline9876")
		Expect(leaks()).To(HaveLen(1))
	})
})
