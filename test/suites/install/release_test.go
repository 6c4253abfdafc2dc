package install_test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/repository"
	"sigs.k8s.io/yaml"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

const (
	releaseVersion = "v0.1.3"
	registry       = "registry.example.com/provisioning"
	serverHost     = "boot.example.com"
	pluginPlatform = runtime.GOOS + "-" + runtime.GOARCH
)

// settings are the variables of clusterctl's configuration file and arguments.
var settings = config.NewMemoryReader()

// releaseDir is the output of make release.
var releaseDir string

// makeRelease runs make release for this machine's platform in a source tree, and returns the folder of the release.
func makeRelease(ctx SpecContext, tree string) string {
	GinkgoHelper()
	out := GinkgoT().TempDir()
	output, err := exec.CommandContext(ctx, "make", "-C", tree, "release", "VERSION="+releaseVersion, "REGISTRY="+registry, "OUT="+out,
		"ARCHITECTURES="+runtime.GOARCH, "PLUGIN_PLATFORMS="+pluginPlatform).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", output)
	return filepath.Join(out, "bootstrap-poolboot", releaseVersion)
}

// readRelease runs make release and opens the release as clusterctl does.
func readRelease(ctx SpecContext) repository.Client {
	GinkgoHelper()
	releaseDir = makeRelease(ctx, sourcetree.Path())
	url := "file://" + filepath.Join(releaseDir, "bootstrap-components.yaml")
	_, err := settings.AddProvider("poolboot", clusterctlv1.BootstrapProviderType, url)
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

	It("has what needs the Prometheus operator in a file of its own, which clusterctl does not install", func() {
		manifest, err := os.ReadFile(filepath.Join(releaseDir, "prometheus-operator.yaml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(string(manifest)).To(And(ContainSubstring("\nkind: ServiceMonitor\n"), ContainSubstring("\nkind: PrometheusRule\n")))
		for _, object := range components.Objs() {
			Expect(object.GroupVersionKind().Group).NotTo(Equal("monitoring.coreos.com"))
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

	It("has the checksums of all its files", func(ctx SpecContext) {
		check := exec.CommandContext(ctx, "sha256sum", "--check", "--quiet", "--strict", "SHA256SUMS")
		check.Dir = releaseDir
		Expect(check.CombinedOutput()).To(BeEmpty())
		sums, err := os.ReadFile(filepath.Join(releaseDir, "SHA256SUMS"))
		Expect(err).NotTo(HaveOccurred())
		files, err := os.ReadDir(releaseDir)
		Expect(err).NotTo(HaveOccurred())
		for _, file := range files {
			if file.Name() != "SHA256SUMS" {
				Expect(string(sums)).To(ContainSubstring("  " + file.Name() + "\n"))
			}
		}
	})

	It("has the same bytes if it is made from the same source in another folder", func(ctx SpecContext) {
		git := func(args ...string) string {
			GinkgoHelper()
			output, err := exec.CommandContext(ctx, "git", append([]string{"-C", sourcetree.Path()}, args...)...).Output()
			Expect(err).NotTo(HaveOccurred())
			return strings.TrimSpace(string(output))
		}
		tree := GinkgoT().TempDir()
		for _, file := range strings.Split(git("ls-files", "--cached", "--others", "--exclude-standard"), "\n") {
			if content, err := os.ReadFile(sourcetree.Path(file)); !errors.Is(err, fs.ErrNotExist) { // a file that is removed and not committed yet
				info, err := os.Stat(sourcetree.Path(file))
				Expect(err).NotTo(HaveOccurred())
				Expect(os.MkdirAll(filepath.Join(tree, filepath.Dir(file)), 0o755)).To(Succeed())
				Expect(os.WriteFile(filepath.Join(tree, file), content, info.Mode())).To(Succeed())
			}
		}
		Expect(os.Symlink(binDir, filepath.Join(tree, "bin"))).To(Succeed())
		Expect(os.WriteFile(filepath.Join(tree, ".git"), []byte("gitdir: "+git("rev-parse", "--absolute-git-dir")+"\n"), 0o600)).To(Succeed())
		want, err := os.ReadFile(filepath.Join(releaseDir, "SHA256SUMS"))
		Expect(err).NotTo(HaveOccurred())
		Expect(os.ReadFile(filepath.Join(makeRelease(ctx, tree), "SHA256SUMS"))).To(BeEquivalentTo(want))
	}, SpecTimeout(10*time.Minute))

	It("has a plugin that krew installs from its manifest, under its name", func(ctx SpecContext) {
		raw, err := os.ReadFile(filepath.Join(releaseDir, "krew-poolboot.yaml"))
		Expect(err).NotTo(HaveOccurred())
		var manifest struct {
			Metadata struct{ Name string }
			Spec     struct {
				Version   string
				Platforms []struct {
					URI, SHA256, Bin string
					Selector         metav1.LabelSelector
				}
			}
		}
		Expect(yaml.Unmarshal(raw, &manifest)).To(Succeed())
		Expect(manifest.Metadata.Name).To(Equal("poolboot"))
		Expect(manifest.Spec.Version).To(Equal(releaseVersion))
		Expect(manifest.Spec.Platforms).To(HaveLen(1))
		platform := manifest.Spec.Platforms[0]
		Expect(platform.Selector.MatchLabels).To(Equal(map[string]string{"os": runtime.GOOS, "arch": runtime.GOARCH}))
		archive := filepath.Join(releaseDir, path.Base(platform.URI))
		content, err := os.ReadFile(archive)
		Expect(err).NotTo(HaveOccurred())
		Expect(fmt.Sprintf("%x", sha256.Sum256(content))).To(Equal(platform.SHA256))
		program := filepath.Join(GinkgoT().TempDir(), platform.Bin)
		Expect(os.WriteFile(program, readTar(archive)[platform.Bin], 0o700)).To(Succeed())
		Expect(exec.CommandContext(ctx, program, "version").Output()).To(ContainSubstring(releaseVersion))
	})

	It("has an SBOM with the modules of each program", func() {
		raw, err := os.ReadFile(filepath.Join(releaseDir, "sbom.cdx.json"))
		Expect(err).NotTo(HaveOccurred())
		var sbom struct {
			BOMFormat    string
			Components   []struct{ PURL string }
			Dependencies []struct {
				Ref       string
				DependsOn []string
			}
		}
		Expect(json.Unmarshal(raw, &sbom)).To(Succeed())
		Expect(sbom.BOMFormat).To(Equal("CycloneDX"))
		Expect(sbom.Components).To(ContainElement(HaveField("PURL", HavePrefix("pkg:golang/sigs.k8s.io/controller-runtime@v"))))
		var programs []string
		for _, dependency := range sbom.Dependencies {
			programs = append(programs, strings.TrimSuffix(dependency.Ref, "@"+releaseVersion))
			Expect(dependency.DependsOn).To(ContainElement(HavePrefix("pkg:golang/stdlib@1.")))
		}
		Expect(programs).To(ConsistOf("manager", "config-server", "poolboot-agent-"+runtime.GOARCH, "kubectl-poolboot-"+pluginPlatform))
	})

	It("can be installed in another namespace", func(ctx SpecContext) {
		moved, err := release.Components().Get(ctx, repository.ComponentsOptions{TargetNamespace: "elsewhere"})
		Expect(err).NotTo(HaveOccurred())
		Expect(moved.Yaml()).NotTo(ContainSubstring("poolboot-system"))
	})
})
