// Package api tests what the API server takes and refuses by the CRDs alone: no manager runs, and no webhook is
// installed.
package api

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
)

var (
	plane *controlplane.ControlPlane
	c     client.Client
)

func TestAPI(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "API")
}

var _ = BeforeSuite(func(ctx context.Context) {
	var err error
	plane, err = controlplane.Start(ctx, controlplane.Options{Name: "api"})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(plane.Stop()).To(Succeed()) })
	_, err = envtest.InstallCRDs(plane.Config, envtest.CRDInstallOptions{
		Paths: []string{filepath.Join("..", "..", "..", "config", "crd", "bases")}, ErrorIfPathMissing: true, MaxTime: time.Minute,
	})
	Expect(err).NotTo(HaveOccurred())
	c, err = client.New(plane.Config, client.Options{Scheme: runtime.NewScheme()})
	Expect(err).NotTo(HaveOccurred())
})

// parse reads an object in YAML. It is in the namespace default if it does not name one.
func parse(document string) *unstructured.Unstructured {
	GinkgoHelper()
	object := &unstructured.Unstructured{}
	Expect(yaml.UnmarshalStrict([]byte(document), &object.Object)).To(Succeed(), document)
	if object.GetNamespace() == "" {
		object.SetNamespace(metav1.NamespaceDefault)
	}
	return object
}

// with is a valid object of a kind with a merge patch in YAML over it.
func with(kind, patch string) *unstructured.Unstructured {
	GinkgoHelper()
	over, err := yaml.YAMLToJSON([]byte(patch))
	Expect(err).NotTo(HaveOccurred(), patch)
	valid, err := yaml.YAMLToJSON([]byte(valid[kind]))
	Expect(err).NotTo(HaveOccurred(), kind)
	merged, err := jsonpatch.MergePatch(valid, over)
	Expect(err).NotTo(HaveOccurred(), patch)
	return parse(string(merged))
}

// valid are objects with what their kinds require and nothing else.
var valid = map[string]string{
	"PoolbootConfig": `
apiVersion: bootstrap.cluster.x-k8s.io/v1alpha1
kind: PoolbootConfig
metadata: {name: edge-x7k2p}
spec: {join: {type: Kubelet}}
`,
	"Enrollment": `
apiVersion: pool.cluster.x-k8s.io/v1alpha1
kind: Enrollment
metadata: {name: edge}
spec:
  clusterName: infra-1
  poolRole: edge
  namePattern: edge-*
  maxUses: 10
  expirationTime: "2030-01-01T00:00:00Z"
  tokenSecretRef: {name: edge-token}
`,
	"MachineConfig": `
apiVersion: pool.cluster.x-k8s.io/v1alpha1
kind: MachineConfig
metadata: {name: 51-edge}
spec: {kernelArguments: [quiet]}
`,
	"MachineConfigPool": `
apiVersion: pool.cluster.x-k8s.io/v1alpha1
kind: MachineConfigPool
metadata: {name: edge}
spec: {clusterName: infra-1, poolRole: edge}
`,
	"PoolbootConfigTemplate": `
apiVersion: bootstrap.cluster.x-k8s.io/v1alpha1
kind: PoolbootConfigTemplate
metadata: {name: edge}
spec: {template: {spec: {join: {type: Kubelet}}}}
`,
}

// takes is the body of a table of patches with which a valid object of a kind is taken.
func takes(kind string) func(ctx SpecContext, patch string) {
	return func(ctx SpecContext, patch string) {
		Expect(c.Create(ctx, with(kind, patch), client.DryRunAll)).To(Succeed())
	}
}

// refuses is the body of a table of patches with which a valid object of a kind is refused, each with the field that
// the answer names and words of it.
func refuses(kind string) func(ctx SpecContext, patch, field string, words ...string) {
	return func(ctx SpecContext, patch, field string, words ...string) {
		Expect(c.Create(ctx, with(kind, patch), client.DryRunAll)).To(refuse(field, words...))
	}
}

// changes is the body of a table of patches that a stored object of a kind is refused.
func changes(kind string) func(ctx SpecContext, patch, field string, words ...string) {
	return func(ctx SpecContext, patch, field string, words ...string) {
		stored := with(kind, `metadata: {name: stored}`)
		Expect(client.IgnoreAlreadyExists(c.Create(ctx, stored))).To(Succeed())
		over, err := yaml.YAMLToJSON([]byte(patch))
		Expect(err).NotTo(HaveOccurred())
		Expect(c.Patch(ctx, stored, client.RawPatch(types.MergePatchType, over), client.DryRunAll)).To(refuse(field, words...))
	}
}

// refuse matches the API server's answer to a write that it refuses: it names a field and says each of some words about
// it.
func refuse(field string, words ...string) gomegatypes.GomegaMatcher {
	causes := func(err error) []metav1.StatusCause {
		status, is := err.(apierrors.APIStatus)
		if !is || status.Status().Details == nil {
			return nil
		}
		return status.Status().Details.Causes
	}
	matchers := []gomegatypes.GomegaMatcher{HaveField("Field", field)}
	for _, word := range words {
		matchers = append(matchers, HaveField("Message", ContainSubstring(word)))
	}
	return WithTransform(causes, ContainElement(And(matchers...)))
}
