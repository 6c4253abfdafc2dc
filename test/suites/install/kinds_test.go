package install_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

// installKinds installs the CRDs that Poolboot requires in a management cluster: those of Cluster API's core and
// kubeadm providers, Metal3 and cert-manager.
func installKinds(ctx SpecContext) {
	clusterAPI := runGo(ctx, sourcetree.Path(), "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api")
	var certManager struct{ Dir string }
	download := runGo(ctx, sourcetree.Path("hack", "tools", "cert-manager"), "mod", "download", "-json", "github.com/cert-manager/cert-manager")
	Expect(json.Unmarshal([]byte(download), &certManager)).To(Succeed())

	var definitions []*apiextensionsv1.CustomResourceDefinition
	for _, dir := range []string{
		filepath.Join(clusterAPI, "core", "config", "crd", "bases"),
		filepath.Join(clusterAPI, "bootstrap", "kubeadm", "config", "crd", "bases"),
		filepath.Join(clusterAPI, "controlplane", "kubeadm", "config", "crd", "bases"),
		sourcetree.Path("test", "world", "metal3", "crds"),
		filepath.Join(certManager.Dir, "deploy", "crds"),
	} {
		definitions = append(definitions, readDefinitions(dir)...)
	}
	_, err := envtest.InstallCRDs(controlPlane.Config, envtest.CRDInstallOptions{CRDs: definitions, MaxTime: time.Minute})
	Expect(err).NotTo(HaveOccurred())
}

// readDefinitions reads the CustomResourceDefinitions of a directory. It adds the contract label that releases have,
// and makes the API server refuse unknown fields.
func readDefinitions(dir string) []*apiextensionsv1.CustomResourceDefinition {
	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	Expect(err).NotTo(HaveOccurred())
	Expect(paths).NotTo(BeEmpty(), dir)
	var definitions []*apiextensionsv1.CustomResourceDefinition
	for _, path := range paths {
		content, err := os.ReadFile(path)
		Expect(err).NotTo(HaveOccurred())
		definition := &apiextensionsv1.CustomResourceDefinition{}
		Expect(yaml.Unmarshal(content, definition)).To(Succeed(), path)
		if strings.HasSuffix(definition.Spec.Group, "cluster.x-k8s.io") {
			definition.Labels = map[string]string{clusterv1.GroupVersion.String(): clusterv1.GroupVersion.Version}
		}
		if definition.Spec.Group == "infrastructure.cluster.x-k8s.io" {
			for _, version := range definition.Spec.Versions {
				refuseUnknownFields(version.Schema.OpenAPIV3Schema)
			}
		}
		definitions = append(definitions, definition)
	}
	return definitions
}

func refuseUnknownFields(schema *apiextensionsv1.JSONSchemaProps) {
	schema.XPreserveUnknownFields = nil
	for name, property := range schema.Properties {
		refuseUnknownFields(&property)
		schema.Properties[name] = property
	}
}

func runGo(ctx SpecContext, dir string, args ...string) string {
	GinkgoHelper()
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir, command.Stderr = dir, GinkgoWriter
	output, err := command.Output()
	Expect(err).NotTo(HaveOccurred())
	return strings.TrimSpace(string(output))
}
