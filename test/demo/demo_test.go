package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

func TestDemo(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "make demo")
}

// marker is a variable in the environment of a demo and of all programs that it starts.
const marker = "DEMO_OF_TEST"

// running returns the programs in whose environment the marker has this value.
func running(value string) (found []string) {
	GinkgoHelper()
	processes, err := filepath.Glob("/proc/[0-9]*")
	Expect(err).NotTo(HaveOccurred())
	for _, process := range processes {
		environment, err := os.ReadFile(filepath.Join(process, "environ"))
		if err != nil || !slices.ContainsFunc(bytes.Split(environment, []byte{0}), func(setting []byte) bool { return string(setting) == marker+"="+value }) {
			continue // it has ended, or another program started it
		}
		if name, err := os.ReadFile(filepath.Join(process, "comm")); err == nil {
			found = append(found, filepath.Base(process)+" "+string(bytes.TrimSpace(name)))
		}
	}
	return found
}

var _ = Describe("make demo", func() {
	DescribeTable("stops everything that it started when only make receives", func(ctx SpecContext, interrupt syscall.Signal) {
		tmp, err := os.MkdirTemp("", "d") // a short path, because the paths of sockets in it have a maximum length
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(os.RemoveAll, tmp)
		value, output := fmt.Sprintf("%d-%d", os.Getpid(), interrupt), gbytes.NewBuffer()
		// The programs that the demo needs are already built, for this suite.
		command := exec.Command("make", "-C", sourcetree.Path(), "--old-file=binaries", "demo", "KEEP=1")
		command.Env = append(slices.DeleteFunc(os.Environ(), func(setting string) bool { return regexp.MustCompile("^(MAKE|MFLAGS)").MatchString(setting) }),
			marker+"="+value, "TMPDIR="+tmp)
		command.Stdout, command.Stderr = output, output
		command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
		Expect(command.Start()).To(Succeed())
		DeferCleanup(func() { _ = command.Process.Signal(syscall.SIGTERM) })
		ended := make(chan error, 1)
		go func() { ended <- command.Wait() }()

		Eventually(ctx, running).WithArguments(value).Should(ContainElement(HaveSuffix(" etcd")))
		Expect(syscall.Kill(command.Process.Pid, interrupt)).To(Succeed())
		Eventually(ctx, ended).Should(Receive(HaveOccurred()))
		Expect(running(value)).To(BeEmpty())
		Expect(os.ReadDir(tmp)).To(BeEmpty())
		Expect(string(output.Contents())).To(And(ContainSubstring("demo: interrupted"), Not(ContainSubstring("FAILED"))))
	},
		Entry("SIGINT", syscall.SIGINT, NodeTimeout(5*time.Minute)),
		Entry("SIGTERM", syscall.SIGTERM, NodeTimeout(5*time.Minute)),
	)

	DescribeTable("waits until the pools are Updated before it prints them", func(change func(infra *poolv1.MachineConfigPool), reason string) {
		pools := []poolv1.MachineConfigPool{{}, {}}
		for i, name := range []string{"worker", "infra"} {
			pools[i].Name, pools[i].Generation, pools[i].Status.HostCount = name, 2, ptr.To[int32](2)
			pools[i].Status.Conditions = []metav1.Condition{{Type: poolv1.UpdatedCondition, Status: metav1.ConditionTrue, ObservedGeneration: 2}}
		}
		change(&pools[1])
		Expect(notUpdated(pools)).To(Equal(reason))
	},
		Entry("all are", func(*poolv1.MachineConfigPool) {}, ""),
		Entry("one is not", func(infra *poolv1.MachineConfigPool) {
			infra.Status.Conditions[0].Status, infra.Status.Conditions[0].Message = metav1.ConditionFalse, "1 of 2 hosts has not joined"
		}, "pool infra is not Updated: 1 of 2 hosts has not joined"),
		Entry("one was at an earlier generation", func(infra *poolv1.MachineConfigPool) {
			infra.Status.Conditions[0].ObservedGeneration, infra.Status.Conditions[0].Message = 1, "All are"
		}, "pool infra is not Updated: All are"),
		Entry("one has no conditions", func(infra *poolv1.MachineConfigPool) { infra.Status.Conditions = nil }, "pool infra has no condition Updated"),
		Entry("a machine is not counted", func(infra *poolv1.MachineConfigPool) { infra.Status.HostCount = ptr.To[int32](1) }, "the pools count 3 machines of 4"),
	)

	DescribeTable("counts every version of every Node", func(change func(versions []site.NodeVersion) []site.NodeVersion, want result) {
		node := func(name, role string, ready, cordoned bool) *corev1.Node {
			status := corev1.ConditionFalse
			if ready {
				status = corev1.ConditionTrue
			}
			return &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{poolv1.NodeRoleLabelPrefix + "worker": "", poolv1.NodeRoleLabelPrefix + role: ""}},
				Spec:       corev1.NodeSpec{Unschedulable: cordoned},
				Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}},
			}
		}
		version := func(name, role string, ready, cordoned bool) site.NodeVersion {
			return site.NodeVersion{Node: node(name, role, ready, cordoned)}
		}
		var pools []poolv1.MachineConfigPool
		var boots []boot
		var versions []site.NodeVersion
		for _, role := range []string{"infra", "worker"} {
			pools = append(pools, poolv1.MachineConfigPool{Spec: poolv1.MachineConfigPoolSpec{PoolRole: role}})
			for i := range 2 {
				b := boot{node: node(fmt.Sprintf("%s-%d", role, i), role, true, false)}
				b.machine.Labels = map[string]string{clusterv1.MachineDeploymentNameLabel: role}
				boots = append(boots, b)
				versions = append(versions, version(b.node.Name, role, false, false), version(b.node.Name, role, true, false))
			}
		}
		// Both hosts of infra are updated, one after the other: cordoned, not Ready, and available again.
		for _, name := range []string{"infra-0", "infra-1"} {
			versions = append(versions, version(name, "infra", true, true), version(name, "infra", false, true), version(name, "infra", true, false))
		}
		want.machines, want.ready = 4, 4
		Expect(count(boots, change(versions), pools)).To(Equal(want))
	},
		Entry("as it should be", func(v []site.NodeVersion) []site.NodeVersion { return v }, result{bornInPool: 4, maxAway: 1}),
		Entry("two hosts are away at a time for one version", func(v []site.NodeVersion) []site.NodeVersion {
			v[10], v[11] = v[11], v[10] // infra-1 is cordoned before infra-0 is available
			return v
		}, result{bornInPool: 4, maxAway: 2}),
		Entry("no host is away", func(v []site.NodeVersion) []site.NodeVersion { return v[:8] }, result{bornInPool: 4}),
		Entry("a host of another pool is away, too", func(v []site.NodeVersion) []site.NodeVersion {
			away := v[7]
			away.Node = away.Node.DeepCopy()
			away.Node.Spec.Unschedulable = true
			return slices.Insert(v, 9, away)
		}, result{bornInPool: 4, maxAway: 2}),
		Entry("a Node was deleted", func(v []site.NodeVersion) []site.NodeVersion {
			deleted := v[7]
			deleted.Deleted = true
			return slices.Insert(v, 9, deleted)
		}, result{bornInPool: 4, maxAway: 2}),
		Entry("a Node that the demo did not boot is away", func(v []site.NodeVersion) []site.NodeVersion {
			other := v[0]
			other.Node = other.Node.DeepCopy()
			other.Node.Name = "other"
			return slices.Insert(v, 9, other)
		}, result{bornInPool: 4, maxAway: 1}),
		Entry("a Node leaves its pool in the second act", func(v []site.NodeVersion) []site.NodeVersion {
			v[9].Node = v[9].Node.DeepCopy()
			delete(v[9].Node.Labels, poolv1.NodeRoleLabelPrefix+"infra")
			return v
		}, result{bornInPool: 4, poolChanges: 2, outside: 1, maxAway: 1}),
		Entry("a Node registers as a plain worker", func(v []site.NodeVersion) []site.NodeVersion {
			v[0].Node = v[0].Node.DeepCopy()
			delete(v[0].Node.Labels, poolv1.NodeRoleLabelPrefix+"infra")
			return v
		}, result{bornInPool: 3, poolChanges: 1, outside: 1, maxAway: 1}),
	)

	DescribeTable("fails if a figure is not the expected one", func(change func(r *result), fails bool) {
		r := result{machines: 4, ready: 4, bornInPool: 4, updated: 2, maxAway: 1, seconds: 70}
		Expect(r.String()).To(Equal("demo: machines=4 ready=4 born-in-pool=4 pool-changes=0 updated=2 max-away=1 seconds=70"))
		change(&r)
		Expect(r.check() != nil).To(Equal(fails))
	},
		Entry("all are", func(*result) {}, false),
		Entry("it took longer", func(r *result) { r.seconds = 700 }, false),
		Entry("one host was not updated", func(r *result) { r.updated = 1 }, true),
		Entry("two hosts were away", func(r *result) { r.maxAway = 2 }, true),
		Entry("no host was away, so none rebooted", func(r *result) { r.maxAway = 0 }, true),
		Entry("a Node was outside its pool", func(r *result) { r.outside = 1 }, true),
		Entry("a host has other files", func(r *result) { r.filesOff = 1 }, true),
	)

	It("prints the times of the boots within 120 columns", func() {
		boots, times, created, out := make([]boot, machines), map[site.Step]time.Time{}, time.Now(), &bytes.Buffer{}
		for i, step := range append([]site.Step{site.MachineCreated}, site.Steps...) {
			times[step] = created.Add(time.Duration(i) * time.Minute)
		}
		for i := range boots {
			boots[i].machine.Name, boots[i].config.Status.HostRef.Name, boots[i].config.Status.PoolRole = fmt.Sprintf("worker-7kvkm-lz6x%d", i), fmt.Sprintf("host-%d", i), "worker"
		}
		printTimeline(out, boots, func(string) map[site.Step]time.Time { return times })
		Expect(out.String()).To(MatchRegexp(`(?m)^TOKEN REVOKED +480\.0 +480\.0 +480\.0 +480\.0$`))
		for line := range strings.Lines(out.String()) {
			Expect(len(line)).To(BeNumerically("<=", 120), line)
		}
	})

	It("prints the reason of a failed update within 120 columns", func() {
		lines := strings.Split(fill("   12.3 s  host-0  ", "Node worker-0 runs rendered-infra-0"+strings.Repeat(", and its update failed", 20)), "\n")
		Expect(lines).To(And(HaveLen(6), HaveEach(WithTransform(func(line string) int { return len(line) }, BeNumerically("<=", 120)))))
		Expect(lines[1]).To(MatchRegexp("^ {19}[a-z]"))
	})

	It("with KEEP=1 prints what to try it with, and how to stop it", func() {
		shown := look{bin: "/site/bin", management: "/site/m/kubeconfig", workload: "/site/w/kubeconfig", manager: "http://127.0.0.1:1/metrics",
			configServer: "http://127.0.0.1:2/metrics", auditLog: "/site/w/audit.log", dir: "/site", pid: 42}
		Expect(shown.flows()).To(ContainSubstring("The audit log of the workload cluster is /site/w/audit.log.\n"))
		text := shown.String()
		Expect(text).To(And(ContainSubstring("export PATH=/site/bin:$PATH KUBECONFIG=/site/m/kubeconfig WORKLOAD_KUBECONFIG=/site/w/kubeconfig\n"),
			ContainSubstring("curl http://127.0.0.1:1/metrics   # manager"), ContainSubstring("curl http://127.0.0.1:2/metrics   # config server"),
			ContainSubstring("The audit log of the workload cluster is /site/w/audit.log.\n"), ContainSubstring("what a host prints on its console in /site/HOST/console.log.\n"), ContainSubstring("kill -INT 42")))
	})

	It("with FLOWS=1 sets up the site of docs/flows.md", func() {
		Expect(exec.Command("make", "-C", sourcetree.Path(), "--dry-run", "demo", "FLOWS=1").Output()).To(ContainSubstring("/demo --flows\n"))
	})
})
