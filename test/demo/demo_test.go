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
