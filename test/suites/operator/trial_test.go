package operator

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
)

const newestIgnition = "application/vnd.coreos.ignition+json;version=3.5.0"

var _ = Describe("An operator", Ordered, ContinueOnFailure, func() {
	blocked := func() float64 {
		return metric("poolboot_boots_total", map[string]string{"pool": "edge", "outcome": "HostFactMissing"})
	}

	Describe("whose host lacks a fact", Ordered, func() {
		var machine string

		It("finds the counters of a new pool at 0", func() {
			kubectl("apply", "-f", "testdata/edge.yaml")
			Eventually(func() float64 {
				return metric("poolboot_boots_total", map[string]string{"pool": "edge", "outcome": "Done"})
			}).Should(BeZero())
			Expect(must(run("curl", "--silent", "--fail", demo.configServer))).To(MatchRegexp(`(?m)^poolboot_config_server_requests_total\{.*\} 0$`))
		})

		It("reads the reason and the cure in the boot, the Machine's explanation and the pool", func() {
			Eventually(func() string { machine = machineOf("edge"); return machine }).ShouldNot(BeEmpty())
			Eventually(func() string { return condition("BootPrepared", "poolbootconfig", machine) }).Should(HavePrefix("False HostFactMissing"))
			Expect(bootOf(machine).Message).To(And(ContainSubstring("door"), ContainSubstring("give the BareMetalHost this fact")))
			explained := poolboot("explain", "machine", machine)
			Expect(explained.Code).NotTo(BeZero(), "there is something to do")
			Expect(explained.Out).To(MatchRegexp(`(?s)To do:.*door`))
			Eventually(func() string { return condition("NodeDegraded", "pbpool", "edge") }).Should(
				And(HavePrefix("True "), ContainSubstring(machine), ContainSubstring("door")))
		})

		It("sees since when it is blocked, however often the host asks", func() {
			asked := func() string { return field("{.status.boot.requestedTime}", "poolbootconfig", machine) }
			first, since := asked(), bootOf(machine).Since
			Expect(first).NotTo(BeEmpty())
			Eventually(asked).ShouldNot(Equal(first), "the host asks again")
			Expect(bootOf(machine).Since).To(Equal(since))
			Eventually(blocked).Should(Equal(1.0))
			Consistently(blocked, "5s", "500ms").Should(Equal(1.0))
		})

		It("gives the host the fact, and sees it boot with the label", func() {
			kubectl("annotate", "bmh", field("{.status.hostRef.name}", "poolbootconfig", machine), "door=north")
			Eventually(func() string { return bootOf(machine).Stage }).Should(Equal("Ready"))
			Expect(inWorkload("get", "node", machine, "-o", "jsonpath={.metadata.labels.example\\.com/door}")).To(Equal("north"))
			Eventually(func() string { return condition("NodeDegraded", "pbpool", "edge") }).Should(HavePrefix("False "))
		})
	})

	Describe("who enrolls hosts", Ordered, func() {
		BeforeAll(func() {
			kubectl("apply", "-f", "testdata/far.yaml")
			for _, role := range []string{"far", "edge"} {
				apply(must(poolboot("enroll", role, "--cluster", "edge", "--pool", role, "--name-pattern", "far-*", "--max-uses", "5", "--expires-in", "1h")))
				Eventually(func() string { return condition("Ready", "enrollment", role) }).Should(HavePrefix("True "))
			}
		})

		It("finds that a host is turned away under the name of a leftover Node, and admitted once that is deleted", func() {
			inWorkload("create", "-f", manifest("apiVersion: v1\nkind: Node\nmetadata: {name: far-1}\n"))
			leftover := inWorkload("get", "node", "far-1", "-o", "jsonpath={.metadata.uid}")
			host := newHost("far", "far-1")
			for range 2 {
				code, body := host.ask(newestIgnition)
				Expect(code).To(Equal(503), body)
				Expect(body).To(ContainSubstring("far-1"))
			}
			Expect(field("{.items[*].status.nodeRef.uid}", "poolbootconfigs")).NotTo(ContainSubstring(leftover))
			inWorkload("delete", "node", "far-1")
			Eventually(func() int { code, _ := host.ask(newestIgnition); return code }).Should(Equal(200))
		})

		It("finds the record of a host that is still blocked by the name of its Node, with a cure that there is", func() {
			host := newHost("edge", "far-2")
			code, body := host.ask(newestIgnition)
			Expect(code).To(Equal(503), body)
			Eventually(func() string { return poolboot("explain", "node", "far-2").Out }).Should(MatchRegexp(`(?s)To do:.*door`))
			explained := poolboot("explain", "node", "far-2")
			Expect(explained.Code).NotTo(BeZero())
			Expect(explained.Out).NotTo(Or(ContainSubstring("give the BareMetalHost"), ContainSubstring("delete the Machine"), ContainSubstring("DataSecretCreated")))
		})

		It("is told by 406 which software reads the configuration", func() {
			code, body := newHost("far", "far-1").ask("application/vnd.coreos.ignition+json;version=2.2.0")
			Expect(code).To(Equal(406))
			Expect(body).To(ContainSubstring("boot an image with Ignition 2.0.0 or newer"))
		})
	})

	Describe("who changes a pool", Ordered, func() {
		var machine string
		BeforeAll(func() {
			machine, _, _ = strings.Cut(machineOf("infra"), " ")
			inWorkload("create", "-f", manifest(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: at-work, namespace: default}
spec:
  nodeName: %s
  containers: [{name: main, image: example.com/at-work}]
`, machine)))
		})

		It("sees labels, taints and rules in the diff, and which Pods a taint evicts", func() {
			pool := kubectl("get", "pbpool", "infra", "-o", "yaml")
			changed := strings.Replace(pool, "  nodeLabels:\n", `  nodeTaints:
  - {key: example.com/maintenance, effect: NoExecute}
  nodeLabelRules:
  - {key: example.com/rack, valueExpression: 'host.labels["rack"]'}
  nodeLabels:
    example.com/color: blue
`, 1)
			Expect(changed).NotTo(Equal(pool))
			diff := poolboot("diff", "-f", manifest(changed))
			Expect(diff.Code).To(Equal(1), diff.Out)
			Expect(diff.Out).To(And(ContainSubstring("example.com/maintenance"), ContainSubstring("example.com/color"), ContainSubstring("example.com/rack"),
				ContainSubstring("at-work")))
		})

		It("reads what a Machine runs, what its pool hands out, and what to do", func() {
			before := field("{.status.configuration.name}", "pbpool", "infra")
			kubectl("label", "machineconfig", "00-worker", "example.com/touched=yes")
			kubectl("patch", "machineconfig", "51-infra", "--type=merge", "-p", `{"spec":{"kernelArguments":["trial=1"]}}`)
			Eventually(func() string { return field("{.status.configuration.name}", "pbpool", "infra") }).ShouldNot(Equal(before))
			after := field("{.status.configuration.name}", "pbpool", "infra")
			Eventually(func() string { return poolboot("explain", "machine", machine).Out }).Should(And(ContainSubstring(before), ContainSubstring(after)))
			Expect(poolboot("explain", "machine", machine).Out).To(MatchRegexp(`(?s)To do:\n  - `))
		})

		It("rolls the MachineDeployment out as the documentation says, and all its Machines run what the pool hands out", func() {
			now := time.Now().UTC().Format(time.RFC3339)
			kubectl("patch", "machinedeployment", "infra", "--type=merge", "-p", fmt.Sprintf(`{"spec":{"rollout":{"after":%q}}}`, now))
			Eventually(func() string { return condition("Updated", "pbpool", "infra") }, "5m").Should(HavePrefix("True "))
			Expect(machineOf("infra")).NotTo(ContainSubstring(machine))
		})
	})

	Describe("who moves a Machine to another pool", func() {
		It("reads the new pool in BootPrepared", func() {
			machine := machineOf("edge")
			kubectl("patch", "machinedeployment", "edge", "--type=merge", "-p",
				`{"spec":{"template":{"metadata":{"labels":{"node-role.kubernetes.io/edge":null,"node-role.kubernetes.io/infra":""}}}}}`)
			Eventually(func() string { return field("{.status.poolRole}", "poolbootconfig", machine) }).Should(Equal("infra"))
			Eventually(func() string { return condition("BootPrepared", "poolbootconfig", machine) }).Should(And(HavePrefix("True "), ContainSubstring("infra"), Not(ContainSubstring("pool edge"))))
		})
	})

	Describe("who types", func() {
		It("has names completed", func() {
			names := poolboot("__complete", "explain", "machine", "").Out
			Expect(names).To(ContainSubstring(machineOf("edge")))
			Expect(poolboot("__complete", "enroll", "x", "--cluster", "edge", "--pool", "").Out).To(ContainSubstring("infra"))
			Expect(poolboot("__complete", "boots", "-n", "").Out).To(ContainSubstring("kube-system"))
		})

		It("has a short name for PoolbootConfigs", func() {
			Expect(kubectl("api-resources", "--api-group", "bootstrap.cluster.x-k8s.io", "-o", "wide")).To(MatchRegexp(`poolbootconfigs +\S+ +bootstrap\.cluster\.x-k8s\.io/v1alpha1 +true +PoolbootConfig`))
		})

		It("renders files, and what is live", func() {
			all := manifest(kubectl("get", "machineconfigs", "-o", "yaml"))
			without := poolboot("render", "--pool", "infra", "-f", all)
			Expect(without.Code).NotTo(BeZero())
			Expect(without.Out).To(And(ContainSubstring("the files"), ContainSubstring("kubectl get pbpool,pbmconf -o yaml"), Not(ContainSubstring("the cluster has no"))))
			Expect(must(poolboot("render", "--pool", "infra", "--live"))).To(ContainSubstring("/etc/infratest"))
		})

		It("lists the events of one object, the newest last", func() {
			machine := machineOf("edge")
			Expect(kubectl("events", "--for", "poolbootconfig/"+machine)).To(MatchRegexp(`(?s)DataSecretCreated.*NodeReady`))
		})
	})

	It("interrupts the demo, which leaves no process and no file behind", func() {
		dir := filepath.Dir(filepath.Dir(demo.management))
		Expect(syscall.Kill(demo.interrupt, syscall.SIGINT)).To(Succeed())
		Eventually(demo.Session, "2m").Should(gexec.Exit(0))
		Expect(dir).NotTo(BeADirectory())
		Expect(commandsWith(dir)).To(BeEmpty())
	})
})

// manifest writes a file for kubectl.
func manifest(content string) string {
	GinkgoHelper()
	file := filepath.Join(GinkgoT().TempDir(), "manifest.yaml")
	Expect(os.WriteFile(file, []byte(content), 0o600)).To(Succeed())
	return file
}

// commandsWith are the command lines of this machine's processes that name something.
func commandsWith(text string) []string {
	GinkgoHelper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	Expect(err).NotTo(HaveOccurred())
	var found []string
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if line := strings.ReplaceAll(string(raw), "\x00", " "); err == nil && strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	slices.Sort(found)
	return found
}
