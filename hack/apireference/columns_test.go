package apireference_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"
)

// shown are objects with the longest values that are usual, by kind.
var shown = map[string]string{
	"Enrollment": `
metadata: {name: infra-west, namespace: edge-site-a}
spec: {clusterName: edge-site-a, poolRole: infra-west, namePattern: "infra-west-[0-9]+", maxUses: 128, expirationTime: "2026-11-29T12:00:00Z"}
status: {usedCount: 127, conditions: [{type: Ready, status: "False", reason: TokenInvalid}]}`,
	"MachineConfig": `
metadata: {name: rendered-infra-west-7a593f69f39c17c500397d02e104e497, namespace: edge-site-a, labels: {poolboot.io/rendered-for: infra-west}}
spec: {config: {ignition: {version: 3.5.0}}}
status: {pools: [infra, infra-west], conditions: [{type: Ready, status: "False"}]}`,
	"MachineConfigPool": `
metadata: {name: edge-storage-rack-a-west, namespace: edge-site-a}
spec: {clusterName: edge-site-a, poolRole: edge-storage-rack-a-west, paused: true}
status:
  hostCount: 128
  readyHostCount: 127
  updatedHostCount: 100
  degradedHostCount: 12
  conditions: [{type: Ready, status: "False", reason: PausedConfigurationInvalid}]`,
	"PoolbootConfig": `
metadata: {name: infra-west-k7x2m-9pq4c-x8v5t, namespace: edge-site-a, labels: {cluster.x-k8s.io/cluster-name: edge-site-a}}
status:
  poolRole: infra-west
  hostRef: {name: rack12-unit07}
  nodeRef: {name: infra-west-k7x2m-9pq4c-x8v5t}
  conditions:
  - {type: Ready, status: "False", reason: NodeUnavailable}
  - {type: NodeInPool, status: "Unknown"}
  - {type: Updated, status: "False", reason: CertificateNotAccepted}`,
	"PoolbootConfigTemplate": `
metadata: {name: infra-west-v1.36.4, namespace: edge-site-a}
spec: {template: {spec: {poolRole: infra-west}}}`,
}

// Test_kubectl_get_fits_in_a_terminal: 120 columns, and 160 with -o wide, except for pools.
func Test_kubectl_get_fits_in_a_terminal(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "config/crd/bases/*.yaml"))
	if err != nil || len(files) != len(shown) {
		t.Fatalf("%d CRDs, %d objects: %v", len(files), len(shown), err)
	}
	for _, file := range files {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text, crd); err != nil {
			t.Fatal(err)
		}
		kind := crd.Spec.Names.Kind
		checkWidth(t, crd, shown[kind], 120, printers.PrintOptions{WithNamespace: true})
		checkWidth(t, crd, shown[kind], 160, printers.PrintOptions{Wide: true})
		if kind == "MachineConfigPool" {
			checkWidth(t, crd, shown[kind], 120, printers.PrintOptions{WithNamespace: true, Wide: true})
		}
	}
}

// checkWidth fails if kubectl get prints an object in more columns than a limit.
func checkWidth(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition, text string, limit int, options printers.PrintOptions) {
	t.Helper()
	kind, object := crd.Spec.Names.Kind, &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(fmt.Sprintf("apiVersion: v1\nkind: %s%s", kind, text)), object); err != nil || object.GetName() == "" {
		t.Fatalf("object of %s: %v", kind, err)
	}
	object.Object["metadata"].(map[string]any)["creationTimestamp"] = time.Now().Add(-29 * time.Hour).UTC().Format(time.RFC3339)
	convertor, err := tableconvertor.New(crd.Spec.Versions[0].AdditionalPrinterColumns)
	if err != nil {
		t.Fatal(err)
	}
	table, err := convertor.ConvertToTable(t.Context(), object, nil)
	if err != nil {
		t.Fatal(err)
	}
	table.Rows[0].Object.Object = object
	var out bytes.Buffer
	if err := printers.NewTablePrinter(options).PrintObj(table, &out); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if width := len(strings.TrimRight(line, " \n")); width > limit {
			t.Errorf("%s: %d columns: %s", kind, width, line)
		}
	}
}
