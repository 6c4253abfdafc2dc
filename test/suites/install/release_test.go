package install_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/version"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/repository"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

const (
	releaseVersion = "v0.1.3"
	registry       = "registry.example.com/provisioning"
	serverHost     = "boot.example.com"
)

// settings are the variables of clusterctl's configuration file and arguments.
var settings = config.NewMemoryReader()

// readRelease runs make release and opens the release as clusterctl does.
func readRelease(ctx SpecContext) repository.Client {
	GinkgoHelper()
	out := GinkgoT().TempDir()
	output, err := exec.CommandContext(ctx, "make", "-C", sourcetree.Path(), "release",
		"VERSION="+releaseVersion, "REGISTRY="+registry, "OUT="+out).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", output)

	url := "file://" + filepath.Join(out, "bootstrap-poolboot", releaseVersion, "bootstrap-components.yaml")
	_, err = settings.AddProvider("poolboot", clusterctlv1.BootstrapProviderType, url)
	Expect(err).NotTo(HaveOccurred())
	for name, value := range variables {
		settings.Set(name, value)
	}
	settings.Set("POOLBOOT_CONFIG_SERVER_HOST", serverHost)
	clusterctl, err := config.New(ctx, "", config.InjectReader(settings))
	Expect(err).NotTo(HaveOccurred())
	provider, err := clusterctl.Providers().Get("poolboot", clusterctlv1.BootstrapProviderType)
	Expect(err).NotTo(HaveOccurred())
	client, err := repository.New(ctx, provider, clusterctl)
	Expect(err).NotTo(HaveOccurred())
	return client
}

var _ = Describe("a release", func() {
	It("is a bootstrap provider to clusterctl, in a namespace of its own", func() {
		Expect(components.ManifestLabel()).To(Equal("bootstrap-poolboot"))
		Expect(components.Version()).To(Equal(releaseVersion))
		Expect(components.TargetNamespace()).To(Equal("poolboot-system"))
		for _, object := range components.Objs() {
			Expect(object.GetLabels()).To(HaveKeyWithValue(clusterv1.ProviderNameLabel, "bootstrap-poolboot"), object.GetName())
		}
	})

	It("has metadata with the contract of its series", func(ctx SpecContext) {
		metadata, err := release.Metadata(releaseVersion).Get(ctx)
		Expect(err).NotTo(HaveOccurred())
		series := metadata.GetReleaseSeriesForVersion(version.MustParseSemantic(releaseVersion))
		Expect(series).To(HaveField("Contract", clusterv1.GroupVersion.Version))
	})

	It("names its images by registry and version", func() {
		Expect(components.Images()).To(ConsistOf(
			registry+"/manager:"+releaseVersion, registry+"/config-server:"+releaseVersion))
	})

	It("has exactly the variables that docs/install.md documents", func() {
		guide, err := os.ReadFile(sourcetree.Path("docs", "install.md"))
		Expect(err).NotTo(HaveOccurred())
		var documented []string
		for _, row := range regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\|").FindAllStringSubmatch(string(guide), -1) {
			documented = append(documented, row[1])
		}
		Expect(components.Variables()).To(ConsistOf(documented))
	})

	It("can be installed in another namespace", func(ctx SpecContext) {
		moved, err := release.Components().Get(ctx, repository.ComponentsOptions{TargetNamespace: "elsewhere"})
		Expect(err).NotTo(HaveOccurred())
		Expect(moved.Yaml()).NotTo(ContainSubstring("poolboot-system"))
	})
})
