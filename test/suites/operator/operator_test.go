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

const acceptNewestIgnition = "application/vnd.coreos.ignition+json;version=3.5.0"

var _ = Describe("An operator", Ordered, ContinueOnFailure, func() {
	blocked := func() float64 {
		return sumMetric("poolboot_boots_total", map[string]string{"pool": "edge", "outcome": "HostFactMissing"})
	}

	Describe("who tries the demo", describePlayground)

	Describe("whose host lacks a fact", Ordered, func() {
		var machine string

		It("sees the counters of a new pool at 0", func() {
			kubectl("apply", "-f", "testdata/edge.yaml")
			Eventually(func() float64 {
				return sumMetric("poolboot_boots_total", map[string]string{"pool": "edge", "outcome": "Done"})
			}).Should(BeZero())
			Expect(expectSuccess(run("curl", "--silent", "--fail", demo.configServer))).To(MatchRegexp(`(?m)^poolboot_config_server_requests_total\{.*\} 0$`))
		})

		It("reads the reason and the remedy in boots, in explain machine and on the pool", func() {
			Eventually(func() string { machine = getMachine("edge"); return machine }).ShouldNot(BeEmpty())
			Eventually(func() string { return getCondition("BootPrepared", "poolbootconfig", machine) }).Should(HavePrefix("False HostFactMissing"))
			Expect(getBoot(machine).Message).To(And(ContainSubstring("door"), ContainSubstring("add this fact to the BareMetalHost")))
			explanation := runPoolboot("explain", "machine", machine)
			Expect(explanation.Code).NotTo(BeZero(), "the output has something to do")
			Expect(explanation.Out).To(MatchRegexp(`(?s)To do:.*door`))
			Eventually(func() string { return getCondition("NodeDegraded", "pbpool", "edge") }).Should(
				MatchRegexp(`^True .* need a user to act: host-\d+: .*door`))
		})

		It("sees since when the host is blocked, independently of its retries", func() {
			getRequestedTime := func() string { return getField("{.status.requests.requestedTime}", "poolbootconfig", machine) }
			first, since := getRequestedTime(), getBoot(machine).Since
			Expect(first).NotTo(BeEmpty())
			Eventually(getRequestedTime).ShouldNot(Equal(first), "the host retries")
			Expect(getBoot(machine).Since).To(Equal(since))
			Eventually(blocked).Should(Equal(1.0))
			Consistently(blocked, "5s", "500ms").Should(Equal(1.0))
		})

		It("adds the fact, and sees the host boot with the label", func() {
			kubectl("annotate", "bmh", getField("{.status.hostRef.name}", "poolbootconfig", machine), "door=north")
			Eventually(func() string { return getBoot(machine).Stage }).Should(Equal("Ready"))
			Expect(kubectlInWorkload("get", "node", machine, "-o", "jsonpath={.metadata.labels.example\\.com/door}")).To(Equal("north"))
			Eventually(func() string { return getCondition("NodeDegraded", "pbpool", "edge") }).Should(HavePrefix("False "))
		})
	})

	Describe("who enrolls hosts", Ordered, func() {
		BeforeAll(func() {
			kubectl("apply", "-f", "testdata/far.yaml")
			for _, role := range []string{"far", "edge"} {
				apply(expectSuccess(runPoolboot("enroll", role, "--cluster", "edge", "--pool", role, "--name-pattern", "far-*", "--max-uses", "5", "--expires-in", "1h")))
				Eventually(func() string { return getCondition("Ready", "enrollment", role) }).Should(HavePrefix("True "))
			}
		})

		It("sees that a host with the name of a leftover Node is refused, and admitted after the Node is deleted", func() {
			kubectlInWorkload("create", "-f", writeManifest("apiVersion: v1\nkind: Node\nmetadata: {name: far-1}\n"))
			leftover := kubectlInWorkload("get", "node", "far-1", "-o", "jsonpath={.metadata.uid}")
			host := newHost("far", "far-1")
			for range 2 {
				code, body := host.request(acceptNewestIgnition)
				Expect(code).To(Equal(503), body)
				Expect(body).To(ContainSubstring("far-1"))
			}
			Expect(getField("{.items[*].status.nodeRef.uid}", "poolbootconfigs")).NotTo(ContainSubstring(leftover))
			kubectlInWorkload("delete", "node", "far-1")
			Eventually(func() int { code, _ := host.request(acceptNewestIgnition); return code }).Should(Equal(200))
		})

		It("finds a blocked host by the name of its Node, with a remedy that applies to it", func() {
			host := newHost("edge", "far-2")
			code, body := host.request(acceptNewestIgnition)
			Expect(code).To(Equal(503), body)
			Eventually(func() string { return runPoolboot("explain", "node", "far-2").Out }).Should(MatchRegexp(`(?s)To do:.*door`))
			explanation := runPoolboot("explain", "node", "far-2")
			Expect(explanation.Code).NotTo(BeZero())
			Expect(explanation.Out).NotTo(Or(ContainSubstring("give the BareMetalHost"), ContainSubstring("delete the Machine"), ContainSubstring("DataSecretCreated")))
		})

		It("gets status 406 for an unsupported Ignition version, with the required version", func() {
			code, body := newHost("far", "far-1").request("application/vnd.coreos.ignition+json;version=2.2.0")
			Expect(code).To(Equal(406))
			Expect(body).To(ContainSubstring("boot an image with Ignition 2.0.0 or newer"))
		})
	})

	Describe("who changes a pool", Ordered, func() {
		var machine string
		rendered := func() string { return getField("{.status.configuration.name}", "pbpool", "infra") }
		BeforeAll(func() {
			machine, _, _ = strings.Cut(getMachine("infra"), " ")
			kubectlInWorkload("create", "-f", writeManifest(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: evicted-pod, namespace: default}
spec:
  nodeName: %s
  containers: [{name: main, image: example.com/evicted-pod}]
`, machine)))
		})

		It("sees labels, taints, rules and evicted Pods in the diff", func() {
			pool := kubectl("get", "pbpool", "infra", "-o", "yaml")
			changed := strings.Replace(pool, "  node:\n    labels:\n", `  node:
    taints:
    - {key: example.com/maintenance, effect: NoExecute}
    labelRules:
    - {key: example.com/rack, valueExpression: 'host.labels["rack"]'}
    labels:
      example.com/color: blue
`, 1)
			Expect(changed).NotTo(Equal(pool))
			diff := runPoolboot("diff", "-f", writeManifest(changed))
			Expect(diff.Code).To(Equal(1), diff.Out)
			Expect(diff.Out).To(And(ContainSubstring("example.com/maintenance"), ContainSubstring("example.com/color"), ContainSubstring("example.com/rack"),
				ContainSubstring("evicted-pod")))
		})

		It("reads the configs of a Machine and of its pool, and what to do", func() {
			before := rendered()
			kubectl("label", "machineconfig", "00-worker", "example.com/touched=yes")
			kubectl("patch", "machineconfig", "51-infra", "--type=merge", "-p", `{"spec":{"extensions":["usbguard"]}}`)
			Eventually(rendered).ShouldNot(Equal(before))
			after := rendered()
			Eventually(func() string { return runPoolboot("explain", "machine", machine).Out }).Should(And(ContainSubstring(before), ContainSubstring(after)))
			// One host of the pool refuses extensions, for which it has no program. The other one waits for it.
			Eventually(func() (all []string) {
				for name := range strings.FieldsSeq(getMachine("infra")) {
					all = append(all, runPoolboot("explain", "machine", name).Out)
				}
				return all
			}).Should(ContainElement(MatchRegexp(`(?s)To do:\n  - `)))
		})

		It("sees the hosts reboot with a kernel argument", func() {
			before := rendered()
			kubectl("patch", "machineconfig", "51-infra", "--type=merge", "-p", `{"spec":{"extensions":null,"kernelArguments":["trial=1"]}}`)
			Eventually(rendered).ShouldNot(Equal(before))
			expectSuccess(runPoolboot("rollout", "status", "infra", "--watch", "--timeout", "5m"))
			Expect(commandLines("infra")).To(And(HaveLen(2), HaveEach(HaveSuffix(" trial=1\n"))))
		})

		It("rolls out the MachineDeployment as documented, and all its Machines run the pool's config", func() {
			old, now := strings.Fields(getMachine("infra")), time.Now().UTC().Format(time.RFC3339)
			kubectl("patch", "machinedeployment", "infra", "--type=merge", "-p", fmt.Sprintf(`{"spec":{"rollout":{"after":%q}}}`, now))
			Eventually(func() []string { return strings.Fields(getMachine("infra")) }, "5m").Should(And(HaveLen(2), Not(ContainElement(BeElementOf(old)))))
			Eventually(func() string { return getCondition("Updated", "pbpool", "infra") }).Should(HavePrefix("True "))
			Expect(commandLines("infra")).To(And(HaveLen(2), HaveEach(HaveSuffix(" trial=1\n"))))
		})
	})

	Describe("who moves a Machine to another pool", func() {
		It("reads the new pool in NodeInPool, and that of the boot in BootPrepared", func() {
			machine := getMachine("edge")
			kubectl("patch", "machinedeployment", "edge", "--type=merge", "-p",
				`{"spec":{"template":{"metadata":{"labels":{"node-role.kubernetes.io/edge":null,"node-role.kubernetes.io/infra":""}}}}}`)
			Eventually(func() string { return getField("{.status.poolRole}", "poolbootconfig", machine) }).Should(Equal("infra"))
			Eventually(func() string { return getCondition("NodeInPool", "poolbootconfig", machine) }).Should(And(HavePrefix("True "), ContainSubstring("infra")))
			Expect(getCondition("BootPrepared", "poolbootconfig", machine)).To(And(HavePrefix("True "), ContainSubstring(`was registered in pool "edge" to boot with rendered-`)))
		})
	})

	Describe("who uses the command line", func() {
		It("gets completion of names", func() {
			names := runPoolboot("__complete", "explain", "machine", "").Out
			Expect(names).To(ContainSubstring(getMachine("edge")))
			Expect(runPoolboot("__complete", "enroll", "x", "--cluster", "edge", "--pool", "").Out).To(ContainSubstring("infra"))
			Expect(runPoolboot("__complete", "boots", "-n", "").Out).To(ContainSubstring("kube-system"))
		})

		It("has a short name for PoolbootConfigs", func() {
			Expect(kubectl("api-resources", "--api-group", "bootstrap.cluster.x-k8s.io", "-o", "wide")).To(MatchRegexp(`poolbootconfigs +\S+ +bootstrap\.cluster\.x-k8s\.io/v1alpha1 +true +PoolbootConfig`))
		})

		It("renders files and live objects", func() {
			all := writeManifest(kubectl("get", "machineconfigs", "-o", "yaml"))
			without := runPoolboot("render", "--pool", "infra", "-f", all)
			Expect(without.Code).NotTo(BeZero())
			Expect(without.Out).To(And(ContainSubstring("the files"), ContainSubstring("kubectl get pbpool,pbmconf -o yaml"), Not(ContainSubstring("the cluster has no"))))
			Expect(expectSuccess(runPoolboot("render", "--pool", "infra", "--live"))).To(ContainSubstring("/etc/infratest"))
		})

		It("lists the events of an object, the newest last", func() {
			machine := getMachine("edge")
			Expect(kubectl("events", "--for", "poolbootconfig/"+machine)).To(MatchRegexp(`(?s)HostFactMissing.*BootPrepared`))
		})
	})

	It("interrupts the demo, which leaves no processes and files", func() {
		dir := filepath.Dir(filepath.Dir(demo.management))
		Expect(syscall.Kill(demo.interrupt, syscall.SIGINT)).To(Succeed())
		Eventually(demo.Session, "2m").Should(gexec.Exit(0))
		Expect(dir).NotTo(BeADirectory())
		Expect(listProcesses(dir)).To(BeEmpty())
	})
})

// commandLines returns the kernel's command line of each host of a MachineDeployment.
func commandLines(deployment string) (all []string) {
	GinkgoHelper()
	for host := range strings.FieldsSeq(getField("{.items[*].status.hostRef.name}", "poolbootconfigs", "-l", "cluster.x-k8s.io/deployment-name="+deployment)) {
		all = append(all, inDemoShell(host, "cat /proc/cmdline"))
	}
	return all
}

// writeManifest writes a file for kubectl and returns its path.
func writeManifest(content string) string {
	GinkgoHelper()
	file := filepath.Join(GinkgoT().TempDir(), "manifest.yaml")
	Expect(os.WriteFile(file, []byte(content), 0o600)).To(Succeed())
	return file
}

// listProcesses lists the command lines of this machine's processes that contain text.
func listProcesses(text string) []string {
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
