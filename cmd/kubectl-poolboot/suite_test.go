package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func TestKubectlPoolboot(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(time.Minute) // a machine may be busy
	RunSpecs(t, "kubectl poolboot")
}

// result is what a command line came to.
type result struct {
	code        int
	out, errOut string
}

// poolboot runs a command line with nothing on standard input.
func poolboot(args ...string) result { return poolbootReading("", args...) }

// poolbootReading runs a command line with a text on standard input.
func poolbootReading(text string, args ...string) result {
	var out, errOut bytes.Buffer
	code := run(genericiooptions.IOStreams{In: strings.NewReader(text), Out: &out, ErrOut: &errOut}, args...)
	return result{code: code, out: out.String(), errOut: errOut.String()}
}

// answered expects a command line to succeed without any note, and returns what it printed.
func answered(r result) string {
	GinkgoHelper()
	Expect(r.errOut).To(BeEmpty())
	Expect(r.code).To(BeZero())
	return r.out
}

// refused expects a command line to fail with an exit code, print nothing, and say why.
func refused(r result, code int, why ...string) {
	GinkgoHelper()
	Expect(r.out).To(BeEmpty())
	Expect(r.errOut).To(HavePrefix("error: "))
	for _, text := range why {
		Expect(r.errOut).To(ContainSubstring(text))
	}
	Expect(r.code).To(Equal(code))
}

// file writes documents into a new file and returns its path. Its directory holds nothing else.
func file(name string, documents ...string) string {
	GinkgoHelper()
	return fileIn(GinkgoT().TempDir(), name, documents...)
}

// fileIn writes documents into a file of a directory, which it makes, and returns its path.
func fileIn(directory, name string, documents ...string) string {
	GinkgoHelper()
	path := filepath.Join(directory, name)
	Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(Succeed())
	Expect(os.WriteFile(path, []byte(strings.Join(documents, "\n---\n")), 0o600)).To(Succeed())
	return path
}

// The infra pool and its MachineConfig are those of the Machine Config Operator's documentation of custom pools, word
// for word.
const (
	openshiftInfra = `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata:
  name: infra
spec:
  machineConfigSelector:
    matchExpressions:
      - {key: machineconfiguration.openshift.io/role, operator: In, values: [worker,infra]}
  nodeSelector:
    matchLabels:
      node-role.kubernetes.io/infra: ""
`
	infra51 = `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  labels:
    machineconfiguration.openshift.io/role: infra
  name: 51-infra
spec:
  config:
    ignition:
      version: 2.2.0
    storage:
      files:
      - contents:
          source: data:,infra
        filesystem: root
        mode: 0644
        path: /etc/infratest
`
	openshiftWorker = `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata:
  name: worker
spec:
  machineConfigSelector:
    matchLabels:
      machineconfiguration.openshift.io/role: worker
  nodeSelector:
    matchLabels:
      node-role.kubernetes.io/worker: ""
  paused: false
  configuration: {}
status:
  machineCount: 3
`
	openshiftMaster = `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata:
  name: master
spec:
  machineConfigSelector:
    matchLabels:
      machineconfiguration.openshift.io/role: master
  nodeSelector:
    matchLabels:
      node-role.kubernetes.io/master: ""
`
)

// ownPool is Poolboot's pool of a role, of a cluster, that selects the MachineConfigs labelled with the role.
func ownPool(cluster, role string) string {
	return `apiVersion: pool.cluster.x-k8s.io/v1alpha1
kind: MachineConfigPool
metadata:
  name: ` + role + `
spec:
  clusterName: ` + cluster + `
  poolRole: ` + role + `
  machineConfigSelector:
    matchLabels:
      machineconfiguration.openshift.io/role: ` + role + `
`
}

// ownConfig is Poolboot's MachineConfig, labelled for a role, with a spec in YAML's flow style.
func ownConfig(name, role, spec string) string {
	return `apiVersion: pool.cluster.x-k8s.io/v1alpha1
kind: MachineConfig
metadata:
  name: ` + name + `
  labels: {machineconfiguration.openshift.io/role: ` + role + `}
spec: ` + spec + `
`
}

// motd is the spec of a MachineConfig that writes a word into /etc/motd.
func motd(word string) string {
	return `{config: {ignition: {version: 3.2.0}, storage: {files: [{path: /etc/motd, mode: 0644, contents: {source: "data:,` + word + `"}}]}}}`
}
