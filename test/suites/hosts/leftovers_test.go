package hosts_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
)

// ownerVariable is an environment variable with the name of a directory. If it is set, this test binary is the owner of
// a host: it boots a host there and prints the process ID of its systemd.
const ownerVariable = "POOLBOOT_TEST_HOST_OWNER"

func own(dir string) {
	ctx := context.Background()
	rack, err := baremetal.NewRack(ctx)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	h, err := rack.NewHost(baremetal.HostOptions{Name: "orphan", Dir: dir})
	if err == nil {
		err = h.ReplaceDisk(ctx, 64<<20)
	}
	if err == nil {
		err = h.Deploy(baremetal.KubeletImage, []byte(`{"ignition": {"version": "3.4.0"}}`))
	}
	if err == nil {
		err = h.PowerOn(ctx)
	}
	for err == nil && h.PID() == 0 {
		err = h.Err()
	}
	fmt.Println(rack.ControlGroupPrefix(), rack.Address(), h.PID(), err)
	<-h.Off()
}

// listen listens on a free port of an address.
func listen(ctx context.Context, address string) net.Listener {
	GinkgoHelper()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(address, "0"))
	Expect(err).NotTo(HaveOccurred())
	return listener
}

// namespaces returns the IDs of a process's namespaces that this process is not in.
func namespaces(pid string) (ids []string) {
	GinkgoHelper()
	for _, kind := range []string{"cgroup", "ipc", "mnt", "net", "pid", "uts"} {
		id, err := os.Readlink(filepath.Join("/proc", pid, "ns", kind))
		Expect(err).NotTo(HaveOccurred())
		Expect(os.Readlink(filepath.Join("/proc/self/ns", kind))).NotTo(Equal(id), "the host is in a namespace of this process")
		ids = append(ids, id)
	}
	return ids
}

// processesIn returns the names of the processes that are in one of the namespaces.
func processesIn(ids []string) (names []string) {
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		links, _ := filepath.Glob(process + "/ns/*")
		isIn := slices.ContainsFunc(links, func(link string) bool {
			id, err := os.Readlink(link)
			return err == nil && slices.Contains(ids, id)
		})
		if isIn {
			name, _ := os.ReadFile(process + "/comm") // empty if it has exited
			names = append(names, strings.TrimSpace(string(name)))
		}
	}
	return names
}

// traces are what a rack has on this machine. Racks of other processes can have the same at the same time.
type traces struct{ controlGroupPrefix, address string }

func tracesOf(rack *baremetal.Rack) traces { return traces{rack.ControlGroupPrefix(), rack.Address()} }

// controlGroups returns the control groups of the rack and its hosts.
func (t traces) controlGroups() []string {
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + t.controlGroupPrefix + "*")
	unified, _ := filepath.Glob("/sys/fs/cgroup/" + t.controlGroupPrefix + "*")
	return append(groups, unified...)
}

// addresses returns the addresses of all network interfaces of this machine.
func addresses(g Gomega) (all []string) {
	found, err := net.InterfaceAddrs()
	g.Expect(err).NotTo(HaveOccurred())
	for _, address := range found {
		all = append(all, address.(*net.IPNet).IP.String())
	}
	return all
}

// areGone fails if something is left.
func (t traces) areGone(g Gomega) {
	g.Expect(t.controlGroups()).To(BeEmpty())
	g.Expect(addresses(g)).NotTo(ContainElement(t.address))
	g.Expect(mounts(g)).NotTo(ContainSubstring("/disk/root"))
}

func mounts(g Gomega) string {
	table, err := os.ReadFile("/proc/self/mounts")
	g.Expect(err).NotTo(HaveOccurred())
	return string(table)
}

var _ = Describe("Nothing is left of a host", func() {
	DescribeTable("when its owner ends by", func(ctx SpecContext, end func(owner *os.Process) error) {
		self, err := os.Executable()
		Expect(err).NotTo(HaveOccurred())
		owner := exec.CommandContext(ctx, self)
		dir := GinkgoT().TempDir()
		owner.Env = append(os.Environ(), ownerVariable+"="+dir)
		owner.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		output, err := owner.StdoutPipe()
		Expect(err).NotTo(HaveOccurred())
		Expect(owner.Start()).To(Succeed())
		var left traces
		var pid string
		line, err := bufio.NewReader(output).ReadString('\n')
		Expect(err).NotTo(HaveOccurred())
		Expect(fmt.Sscanf(line, "%s %s %s <nil>", &left.controlGroupPrefix, &left.address, &pid)).To(Equal(3), line)
		Expect(left.controlGroups()).NotTo(BeEmpty())
		Expect(addresses(Default)).To(ContainElement(left.address))
		ids := namespaces(pid)
		Eventually(processesIn).WithArguments(ids).Should(ContainElements("systemd", "systemd-journal", "containerd"))

		Expect(end(owner.Process)).To(Succeed())
		Expect(owner.Wait()).NotTo(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(processesIn(ids)).To(BeEmpty())
			left.areGone(g)
			g.Expect(mounts(g)).NotTo(ContainSubstring(dir), "the disk")
		}).WithTimeout(30 * time.Second).Should(Succeed())
	},
		Entry("SIGKILL", (*os.Process).Kill, SpecTimeout(3*time.Minute)),
		Entry("Ctrl-C in a terminal, which also reaches all processes of the group", func(owner *os.Process) error {
			return syscall.Kill(-owner.Pid, syscall.SIGINT)
		}, SpecTimeout(3*time.Minute)),
	)

	It("when the rack is closed while it boots", func(ctx SpecContext) {
		rack, err := baremetal.NewRack(ctx)
		Expect(err).NotTo(HaveOccurred())
		left := tracesOf(rack)
		for i := range 2 {
			Expect(newHost(rack, fmt.Sprint("host-", i), baremetal.KubeletImage, map[string]any{}).PowerOn(ctx)).To(Succeed())
		}
		Expect(rack.Close()).To(Succeed())
		left.areGone(Default)
		Expect(rack.Close()).To(Succeed())
	}, SpecTimeout(3*time.Minute))
})

var _ = Describe("A machine that can't run hosts", func() {
	It("says immediately what to do, without root", func(ctx SpecContext) {
		script, err := os.Open("../../../hack/namespaces.sh")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(script.Close)
		check := exec.CommandContext(ctx, "setpriv", "--reuid=65534", "--clear-groups", "bash", "-s")
		check.Stdin = script
		output, err := check.CombinedOutput()
		Expect(err).To(HaveOccurred())
		Expect(string(output)).To(Equal("only root can run hosts in namespaces. What to do: run the same command as root, for example with sudo\n"))
	}, SpecTimeout(time.Minute))

	It("says immediately what to do, in a container without privileges", func(ctx SpecContext) {
		self, err := os.Executable()
		Expect(err).NotTo(HaveOccurred())
		owner := exec.CommandContext(ctx, "setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", self)
		dir := GinkgoT().TempDir()
		owner.Env = append(os.Environ(), ownerVariable+"="+dir)
		output, err := owner.Output()
		Expect(err).To(HaveOccurred())
		Expect(string(output)).To(And(HavePrefix("root can't create namespaces here"), ContainSubstring("What to do: use a virtual or physical machine, or")))
	}, SpecTimeout(time.Minute))
})
