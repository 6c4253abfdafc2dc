package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
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
			pools[i].Name, pools[i].Generation, pools[i].Status.MachineCount = name, 2, ptr.To[int32](2)
			pools[i].Status.Conditions = []metav1.Condition{{Type: poolv1.UpdatedCondition, Status: metav1.ConditionTrue, ObservedGeneration: 2}}
		}
		change(&pools[1])
		Expect(notUpdated(pools)).To(Equal(reason))
	},
		Entry("all are", func(*poolv1.MachineConfigPool) {}, ""),
		Entry("one is not", func(infra *poolv1.MachineConfigPool) {
			infra.Status.Conditions[0].Status, infra.Status.Conditions[0].Message = metav1.ConditionFalse, "1 of 2 Machines has not joined"
		}, "pool infra is not Updated: 1 of 2 Machines has not joined"),
		Entry("one was at an earlier generation", func(infra *poolv1.MachineConfigPool) {
			infra.Status.Conditions[0].ObservedGeneration, infra.Status.Conditions[0].Message = 1, "All are"
		}, "pool infra is not Updated: All are"),
		Entry("one has no conditions", func(infra *poolv1.MachineConfigPool) { infra.Status.Conditions = nil }, "pool infra has no condition Updated"),
		Entry("a machine is not counted", func(infra *poolv1.MachineConfigPool) { infra.Status.MachineCount = ptr.To[int32](1) }, "the pools count 3 machines of 4"),
	)

	It("with KEEP=1 prints distinct variables for what to inspect, and how to stop it", func() {
		text := look{management: "/site/m/kubeconfig", workload: "/site/w/kubeconfig", manager: "http://127.0.0.1:1/metrics",
			configServer: "http://127.0.0.1:2/metrics", dir: "/site", pid: 42}.String()
		names := map[string]bool{}
		for _, set := range regexp.MustCompile(`export (\w+)=`).FindAllStringSubmatch(text, -1) {
			names[set[1]] = true
		}
		Expect(names).To(And(HaveLen(2), Not(HaveKey("KUBECONFIG"))))
		Expect(text).To(And(ContainSubstring("=/site/m/kubeconfig\n"), ContainSubstring("=/site/w/kubeconfig\n"),
			ContainSubstring("curl http://127.0.0.1:1/metrics   # manager"), ContainSubstring("curl http://127.0.0.1:2/metrics   # config server"),
			ContainSubstring("kill -INT 42")))
	})
})
