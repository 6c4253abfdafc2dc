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

// parent, set to a folder, makes this test binary a program that starts another and waits.
const parent = "POOLBOOT_TEST_PARENT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(parent); dir != "" {
		// The shell says its process ID in its log and becomes a program that takes long.
		if _, err := process.Launch(dir, "/bin/sh", "-c", "echo $$; exec sleep 600"); err != nil {
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
	SetDefaultEventuallyTimeout(time.Minute) // a machine may be busy
	RunSpecs(t, "Process")
}

var _ = Describe("a program", func() {
	It("ends with the one that started it, even when that is killed", func() {
		dir := GinkgoT().TempDir()
		starter := exec.Command(os.Args[0])
		starter.Env = append(os.Environ(), parent+"="+dir)
		output, err := starter.StdoutPipe()
		Expect(err).NotTo(HaveOccurred())
		Expect(starter.Start()).To(Succeed())
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
		Expect(running(started)).To(BeTrue())

		Expect(starter.Process.Kill()).To(Succeed())
		_ = starter.Wait()
		Eventually(running).WithArguments(started).Should(BeFalse())
	})

	It("ends when it is told to", func() {
		p, err := process.Launch(GinkgoT().TempDir(), "/bin/sh", "-c", "exec sleep 600")
		Expect(err).NotTo(HaveOccurred())
		Expect(p.Running()).To(BeTrue())
		Expect(p.Stop()).To(Succeed())
		Expect(p.Running()).To(BeFalse())
		Expect(p.Stop()).To(Succeed(), "a second time is no error")
	})
})

// running says whether a process runs; one that is dead and has not been waited for does not.
func running(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(status), ") Z ")
}
