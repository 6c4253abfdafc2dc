package process_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
)

// parentVariable is an environment variable. If it is set to a directory, this test binary starts another program and
// waits.
const parentVariable = "POOLBOOT_TEST_PARENT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(parentVariable); dir != "" {
		// The shell prints its process ID and executes a program that runs for a long time.
		if _, err := process.Launch(dir, nil, "/bin/sh", "-c", "echo $$; exec sleep 600"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("started")
		select {}
	}
	os.Exit(m.Run())
}

func TestProcess(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(time.Minute) // for busy machines
	RunSpecs(t, "Process")
}

var _ = Describe("a program", func() {
	It("is killed when its parent process is killed", func() {
		dir := GinkgoT().TempDir()
		parent := exec.Command(os.Args[0])
		parent.Env = append(os.Environ(), parentVariable+"="+dir)
		output, err := parent.StdoutPipe()
		Expect(err).NotTo(HaveOccurred())
		Expect(parent.Start()).To(Succeed())
		Expect(bufio.NewReader(output).ReadString('\n')).To(Equal("started\n"))
		var started int
		Eventually(func() error {
			log, err := os.ReadFile(dir + "/sh.log")
			if err != nil {
				return err
			}
			started, err = strconv.Atoi(strings.TrimSpace(string(log)))
			return err
		}).Should(Succeed())
		DeferCleanup(func() { _ = syscall.Kill(started, syscall.SIGKILL) })
		Expect(isRunning(started)).To(BeTrue())

		Expect(parent.Process.Kill()).To(Succeed())
		_ = parent.Wait()
		Eventually(isRunning).WithArguments(started).Should(BeFalse())
	})

	It("can be stopped", func() {
		p, err := process.Launch(GinkgoT().TempDir(), nil, "/bin/sh", "-c", "exec sleep 600")
		Expect(err).NotTo(HaveOccurred())
		Expect(p.Running()).To(BeTrue())
		Expect(p.Stop()).To(Succeed())
		Expect(p.Running()).To(BeFalse())
		Expect(p.Stop()).To(Succeed(), "stopping it twice is not an error")
	})
})

// isRunning reports whether a process runs. Zombies do not run.
func isRunning(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(status), ") Z ")
}
