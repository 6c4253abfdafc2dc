// Package api tests the validation of the CRDs, without a manager and webhooks.
package api

import (
	"context"
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

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/config"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
)

var (
	controlPlane *controlplane.ControlPlane
	k8sClient    client.Client
)

func TestAPI(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "API")
}

var _ = BeforeSuite(func(ctx context.Context) {
	var err error
	controlPlane, err = controlplane.Start(ctx, controlplane.Options{Name: "api"})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(controlPlane.Stop()).To(Succeed()) })
	_, err = envtest.InstallCRDs(controlPlane.Config, envtest.CRDInstallOptions{CRDs: config.CRDs(), MaxTime: time.Minute})
	Expect(err).NotTo(HaveOccurred())
	k8sClient, err = client.New(controlPlane.Config, client.Options{Scheme: runtime.NewScheme()})
	Expect(err).NotTo(HaveOccurred())
})

// parseObject parses an object in YAML. Its namespace is default if it has none.
func parseObject(document string) *unstructured.Unstructured {
	GinkgoHelper()
	object := &unstructured.Unstructured{}
	Expect(yaml.UnmarshalStrict([]byte(document), &object.Object)).To(Succeed(), document)
	if object.GetNamespace() == "" {
		object.SetNamespace(metav1.NamespaceDefault)
	}
	return object
}

// newObject returns a valid object of a kind with a YAML merge patch applied to it.
func newObject(kind, patch string) *unstructured.Unstructured {
	GinkgoHelper()
	over, err := yaml.YAMLToJSON([]byte(patch))
	Expect(err).NotTo(HaveOccurred(), patch)
	valid, err := yaml.YAMLToJSON([]byte(validObjects[kind]))
	Expect(err).NotTo(HaveOccurred(), kind)
	merged, err := jsonpatch.MergePatch(valid, over)
	Expect(err).NotTo(HaveOccurred(), patch)
	return parseObject(string(merged))
}

// validObjects are objects with the required fields only, by kind.
var validObjects = map[string]string{
	"PoolbootConfig": `
apiVersion: bootstrap.cluster.x-k8s.io/v1alpha1
kind: PoolbootConfig
metadata: {name: edge-x7k2p}
spec: {join: {type: Kubelet}}
`,
	"Enrollment": `
apiVersion: poolboot.io/v1alpha1
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
apiVersion: poolboot.io/v1alpha1
kind: MachineConfig
metadata: {name: 51-edge}
spec: {kernelArguments: [quiet]}
`,
	"MachineConfigPool": `
apiVersion: poolboot.io/v1alpha1
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

// expectAccepted returns the body of a table of patches with which a valid object of a kind is accepted.
func expectAccepted(kind string) func(ctx SpecContext, patch string) {
	return func(ctx SpecContext, patch string) {
		Expect(k8sClient.Create(ctx, newObject(kind, patch), client.DryRunAll)).To(Succeed())
	}
}

// expectRefused returns the body of a table of patches with which a valid object of a kind is refused, with the field
// and words of the error.
func expectRefused(kind string) func(ctx SpecContext, patch, field string, words ...string) {
	return func(ctx SpecContext, patch, field string, words ...string) {
		Expect(k8sClient.Create(ctx, newObject(kind, patch), client.DryRunAll)).To(matchRefusal(field, words...))
	}
}

// expectImmutable returns the body of a table of patches that are refused for an existing object of a kind.
func expectImmutable(kind string) func(ctx SpecContext, patch, field string, words ...string) {
	return func(ctx SpecContext, patch, field string, words ...string) {
		stored := newObject(kind, `metadata: {name: stored}`)
		Expect(client.IgnoreAlreadyExists(k8sClient.Create(ctx, stored))).To(Succeed())
		over, err := yaml.YAMLToJSON([]byte(patch))
		Expect(err).NotTo(HaveOccurred())
		Expect(k8sClient.Patch(ctx, stored, client.RawPatch(types.MergePatchType, over), client.DryRunAll)).To(matchRefusal(field, words...))
	}
}

// matchRefusal matches an error of the API server that has a cause with the field, and with all words in its message.
func matchRefusal(field string, words ...string) gomegatypes.GomegaMatcher {
	causes := func(err error) []metav1.StatusCause {
		status, ok := err.(apierrors.APIStatus)
		if !ok || status.Status().Details == nil {
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
