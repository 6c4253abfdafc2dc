package input_test

import (
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = Describe("Objects of other kinds", func() {
	infra := clitest.Pool("edge", "infra")
	notes := func(name, document string) string {
		directory := GinkgoT().TempDir()
		clitest.WriteFileIn(directory, name, document)
		r := poolboot("which", "--labels", clitest.RoleLabels("infra"), "--pools", filepath.Join(directory, name), clitest.WriteFile("pool.yaml", infra))
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(r.Out).To(Equal("infra\n"))
		return strings.NewReplacer(directory+"/", "", directory, "DIRECTORY").Replace(r.ErrOut)
	}

	It("are noted with each object in them that would be read by itself", func() {
		Expect(notes("a.yaml", `apiVersion: policy.open-cluster-management.io/v1
kind: Policy
metadata:
  name: p
  annotations: {kubectl.kubernetes.io/last-applied-configuration: '{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig","metadata":{"name":"50-a"}}'}
spec:
  policy-templates:
  - objectDefinition:
      kind: ConfigurationPolicy
      spec:
        object-templates:
        - objectDefinition: {apiVersion: machineconfiguration.openshift.io/v1, kind: MachineConfig, metadata: {name: 50-a}}
        - objectDefinition: {apiVersion: machineconfiguration.openshift.io/v1, kind: KubeletConfig, spec: {}}
  reference: {apiVersion: machineconfiguration.openshift.io/v1, kind: MachineConfig, name: 50-b}
`)).To(Equal(`note: a.yaml: document 1: line 3: Policy "p" of policy.open-cluster-management.io/v1 is ignored
warning: a.yaml: document 1: line 12: Policy "p": spec.policy-templates[0].objectDefinition.spec.object-templates[0].objectDefinition: MachineConfig "50-a" in it is not read: move it to a file of its own
warning: a.yaml: document 1: line 13: Policy "p": spec.policy-templates[0].objectDefinition.spec.object-templates[1].objectDefinition: KubeletConfig "" in it is not read: move it to a file of its own
`))
		Expect(notes("a.yaml", `apiVersion: v1
kind: ConfigMap
metadata: {name: extra-manifests}
data:
  50-a.yaml: |
    # apiVersion and kind
    ---
    apiVersion: machineconfiguration.openshift.io/v1
    kind: MachineConfig
    metadata: {name: 50-a}
    ---
    apiVersion: machineconfiguration.openshift.io/v1
    kind: MachineConfigPool
    metadata: {name: infra}
  other: "apiVersion, kind: a: b"
`)).To(Equal(`note: a.yaml: document 1: line 3: ConfigMap "extra-manifests" of v1 is ignored
warning: a.yaml: document 1: line 5: ConfigMap "extra-manifests": data[50-a.yaml]: MachineConfig "50-a" in it is not read: move it to a file of its own
warning: a.yaml: document 1: line 5: ConfigMap "extra-manifests": data[50-a.yaml]: MachineConfigPool "infra" in it is not read: move it to a file of its own
`))
	})

	It("are not noted as contained in themselves", func() {
		Expect(notes("a.yaml", "apiVersion: machineconfiguration.openshift.io/v1\nkind: KubeletConfig\nmetadata: {name: k}\nspec: {kubeletConfig: {maxPods: 100}}\n")).
			To(Equal("note: a.yaml: document 1: line 3: KubeletConfig \"k\" of machineconfiguration.openshift.io/v1 is ignored\n"))
	})

	It("are noted with what to read instead, if other programs make objects of them", func() {
		Expect(notes("a.yaml", "apiVersion: performance.openshift.io/v2\nkind: PerformanceProfile\nmetadata: {name: p}\n")).
			To(HaveSuffix(`PerformanceProfile "p" of performance.openshift.io/v2 is ignored: OpenShift makes MachineConfigs and a KubeletConfig of it: read those of a dump of the cluster` + "\n"))
	})

	DescribeTable("of a kustomization are not built, and a warning names what has no effect",
		func(name, document, want string) { Expect(notes(name, document)).To(Equal(want)) },
		Entry("with patches", "kustomization.yaml", "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [a.yaml]\npatches: [{path: b.yaml}]\nnamePrefix: a-\n",
			"warning: kustomization.yaml: document 1: line 5: Kustomization: it is not built, and its namePrefix, patches have no effect: build it with kubectl kustomize DIRECTORY, and read the result\n"),
		Entry("without a kind", "kustomization.yml", "patches: [{path: b.yaml}]\n",
			"warning: kustomization.yml: document 1: line 1: Kustomization: it is not built, and its patches have no effect: build it with kubectl kustomize DIRECTORY, and read the result\n"),
		Entry("with files only", "a.yaml", "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [a.yaml]\n",
			"note: a.yaml: document 1: line 1: Kustomization is not built: the files that it lists are read if they are named\n"),
	)
})
