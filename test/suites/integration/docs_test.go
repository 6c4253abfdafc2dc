package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var (
	yamlBlock        = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```")
	invalidOnPurpose = regexp.MustCompile(`^# (broken|typo|near)\.yaml`)
)

var _ = Describe("The documentation", func() {
	It("has only YAML that the API server and the webhooks accept", func(ctx SpecContext) {
		t := tenant.NewEmpty(ctx, lab)
		var files []string
		for _, folder := range []string{"docs", filepath.Join("docs", "dev")} {
			pages, err := filepath.Glob(sourcetree.Path(folder, "*.md"))
			Expect(err).NotTo(HaveOccurred())
			files = append(files, pages...)
		}
		objects := 0
		for _, file := range append(files, sourcetree.Path("README.md")) {
			text, err := os.ReadFile(file)
			Expect(err).NotTo(HaveOccurred())
			for _, block := range yamlBlock.FindAllSubmatch(text, -1) {
				if invalidOnPurpose.Match(block[1]) {
					continue
				}
				parsed, err := yaml.ToUnstructured(block[1])
				Expect(err).NotTo(HaveOccurred(), "%s:\n%s", file, block[1])
				for _, object := range parsed {
					isOurs := strings.HasPrefix(object.GetAPIVersion(), "poolboot.io/") || strings.Contains(object.GetAPIVersion(), "cluster.x-k8s.io/")
					if !isOurs && object.GetKind() != "BareMetalHost" && !strings.HasPrefix(object.GetAPIVersion(), "rbac.authorization.k8s.io/") {
						continue // a configuration file, or an object of OpenShift
					}
					object.SetNamespace("")
					if isNamespaced, err := lab.ManagementClient.IsObjectNamespaced(&object); Expect(err).NotTo(HaveOccurred()) && isNamespaced {
						object.SetNamespace(t.Namespace)
					}
					object.SetName(strings.TrimPrefix(object.GetName(), poolv1.RenderedNamePrefix)) // users cannot create rendered configs
					Expect(lab.ManagementClient.Create(ctx, &object, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))).
						To(Succeed(), "%s: %s %s", file, object.GetKind(), object.GetName())
					objects++
				}
			}
		}
		Expect(objects).To(BeNumerically(">", 20))
	})

	It("converts dumps of OpenShift to what kubectl applies", func(ctx SpecContext) {
		t := tenant.NewEmpty(ctx, lab)
		shell := &terminal{dir: GinkgoT().TempDir()}
		text, err := os.ReadFile(sourcetree.Path("docs", "migration.md"))
		Expect(err).NotTo(HaveOccurred())
		dumps := namedFile.FindAllStringSubmatch(string(text), -1)
		Expect(dumps).To(HaveLen(2))
		for _, dump := range dumps {
			shell.write(dump[1], dump[2])
			shell.run(ctx, "kubectl poolboot convert --skip-refused --cluster edge -n "+t.Namespace+" -f "+dump[1]+" > edge.yaml")
			applied := shell.run(ctx, "kubectl apply --dry-run=server --validate=strict -f edge.yaml")
			Expect(shell.code).To(BeZero(), applied)
			Expect(applied).To(ContainSubstring("machineconfigpool.poolboot.io/worker created (server dry run)"))
		}
	})
})
