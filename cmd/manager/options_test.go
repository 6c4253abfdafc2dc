package main

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/loopback"
)

func TestManager(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Manager")
}

// parse returns the options of a command line with args and the only required flag.
func parse(args ...string) *options {
	GinkgoHelper()
	var o options
	fs := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	o.addFlags(fs)
	Expect(fs.Parse(append([]string{"--config-server-url=https://poolboot.example.com:9444"}, args...))).To(Succeed())
	return &o
}

var _ = Describe("Flags", func() {
	It("require only the config server's URL", func() {
		o := parse()
		Expect(o.complete()).To(Succeed())
		Expect(o.reconcilers.OverlayNamespace).To(Equal("poolboot-system"))
		Expect(o.reconcilers.RenderedHistory).To(Equal(5))
	})

	It("accept a URL with a trailing slash", func() {
		o := parse("--config-server-url=https://[::1]:9444/")
		Expect(o.complete()).To(Succeed())
		Expect(o.reconcilers.ServerURL).To(Equal("https://[::1]:9444"))
	})

	It("skip phases of the CRD migration, as those of Cluster API's managers do", func() {
		o := parse("--skip-crd-migration-phases=StorageVersionMigration", "--skip-crd-migration-phases=CleanupManagedFields")
		Expect(o.complete()).To(Succeed())
		Expect(o.reconcilers.SkipCRDMigrationPhases).To(ConsistOf("StorageVersionMigration", "CleanupManagedFields"))
	})

	It("compile the expressions of synced labels", func() {
		o := parse(`--additional-sync-machine-labels=example\.com/.*`, "--additional-sync-machine-labels=^rack$")
		Expect(o.complete()).To(Succeed())
		synced := o.reconcilers.SyncedLabels
		Expect(synced).To(HaveLen(2))
		Expect(synced[1].MatchString("rack")).To(BeTrue())
	})

	DescribeTable("refuse invalid values and name the flag",
		func(flag string, words ...string) {
			err := parse(flag).complete()
			for _, word := range words {
				Expect(err).To(MatchError(ContainSubstring(word)))
			}
		},
		Entry("no URL", "--config-server-url=", "--config-server-url", "https"),
		Entry("a URL without a host", "--config-server-url=https://:9444", "--config-server-url", "https"),
		Entry("a URL without TLS", "--config-server-url=http://poolboot:9444", "--config-server-url", "https"),
		Entry("a URL with a path", "--config-server-url=https://poolboot/config", "--config-server-url", "without a path"),
		Entry("no overlay namespace", "--overlay-namespace=", "--overlay-namespace"),
		Entry("a negative history", "--rendered-config-history=-1", "--rendered-config-history", "0 or more"),
		Entry("an unknown phase of CRD migration", "--skip-crd-migration-phases=StorageVersionMigration,All", "--skip-crd-migration-phases=All", "CleanupManagedFields"),
		Entry("an invalid regular expression", "--additional-sync-machine-labels=(", "--additional-sync-machine-labels", `"("`),
	)
})

var _ = Describe("CA file", func() {
	It("is read every time, with all its certificates", func() {
		file := caFile(filepath.Join(GinkgoT().TempDir(), "ca.crt"))
		for _, name := range []string{"old", "new"} {
			ca, err := loopback.NewCA(name)
			Expect(err).NotTo(HaveOccurred())
			both := append(ca.PEM(), ca.PEM()...)
			Expect(os.WriteFile(string(file), both, 0o600)).To(Succeed())
			Expect(file.read()).To(BeEquivalentTo(string(both) + "\n"))
		}
	})

	It("can be a directory, of which hosts get all certificates", func() {
		directory := GinkgoT().TempDir()
		_, err := caFile(directory).read()
		Expect(err).To(MatchError(ContainSubstring("*.crt")))
		var want []byte
		for _, name := range []string{"ca.crt", "more.crt"} {
			ca, err := loopback.NewCA(name)
			Expect(err).NotTo(HaveOccurred())
			Expect(os.WriteFile(filepath.Join(directory, name), ca.PEM(), 0o600)).To(Succeed())
			want = append(want, ca.PEM()...)
			pointer := ignition.Pointer{URL: "https://a", Token: "b"}
			pointer.CA, err = caFile(directory).read()
			Expect(err).NotTo(HaveOccurred())
			document, err := pointer.Marshal()
			Expect(err).NotTo(HaveOccurred())
			Expect(ignition.ParsePointer(document)).To(HaveField("CA", want))
		}
	})

	It("can be omitted", func() {
		Expect(caFile("").read()).To(BeEmpty())
	})

	It("causes an error if it is missing or has no certificate", func() {
		missing := caFile(filepath.Join(GinkgoT().TempDir(), "ca.crt"))
		_, err := missing.read()
		Expect(err).To(MatchError(ContainSubstring("--config-server-ca-file")))
		Expect(os.WriteFile(string(missing), []byte("no PEM"), 0o600)).To(Succeed())
		_, err = missing.read()
		Expect(err).To(MatchError(ContainSubstring("has no PEM certificate")))
	})
})
