package operator

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// describePlayground has the specs about what the demo has for a user who tries it.
func describePlayground() {
	It("has a shell on each host of the demo", func() {
		hosts := strings.Fields(kubectl("get", "bmh", "-o", `jsonpath={.items[?(@.status.provisioning.state=="provisioned")].metadata.name}`))
		Expect(hosts).NotTo(BeEmpty())
		for _, host := range hosts {
			Expect(inDemoShell(host, "hostname; systemctl is-active kubelet.service")).To(Equal(host + "\nactive\n"))
		}
	})

	It("has none on a host of a test that runs at the same time", func() {
		other := exec.Command("unshare", "--uts", "bash", "-c", "hostname host-9; exec -a '/sbin/init systemd.show_status=1' sleep infinity")
		Expect(other.Start()).To(Succeed())
		DeferCleanup(func() { _ = other.Process.Kill(); _ = other.Wait() })
		Eventually(func() int { return run("pgrep", "--parent", strconv.Itoa(os.Getpid()), "-f", "^/sbin/init").Code }).Should(BeZero())
		Expect(run("make", "-C", filepath.Dir(demo.bin), "demo-shell", "HOST=host-9").Out).To(ContainSubstring("No running host of a demo has the name HOST=host-9. What to do: set HOST to one that runs: "))
	})

	It("switches a host off and on by the command that it prints", func() {
		printed := regexp.MustCompile(`kubectl annotate baremetalhost (\S+) (reboot\S+)= `).FindStringSubmatch(string(demo.Out.Contents()))
		Expect(printed).NotTo(BeNil())
		host, key := printed[1], printed[2]
		kubectl("annotate", "baremetalhost", host, key+"=")
		Eventually(func() string { return getField("{.status.poweredOn}", "baremetalhost", host) }).Should(Equal("false"))
		Expect(run("make", "-C", filepath.Dir(demo.bin), "demo-shell", "HOST="+host).Out).To(ContainSubstring("No running host of a demo has the name HOST=" + host))
		kubectl("annotate", "baremetalhost", host, key+"-")
		Eventually(func() string { return getField("{.status.poweredOn}", "baremetalhost", host) }).Should(Equal("true"))
		config := getField(fmt.Sprintf("{.items[?(@.status.hostRef.name==%q)].metadata.name}", host), "poolbootconfig")
		Eventually(func() string { return getCondition("NodeInPool", "poolbootconfig", config) }).Should(HavePrefix("True "))
	})

	It("can run Pods on the hosts of the demo", func() {
		kubectlInWorkload("create", "deployment", "web", "--image=localhost/pause:1")
		DeferCleanup(kubectlInWorkload, "delete", "deployment", "web")
		Eventually(func() string {
			return kubectlInWorkload("get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].status.phase}")
		}).Should(Equal("Running"))
	})
}

// inDemoShell returns the output of commands in a shell on a host.
func inDemoShell(host, commands string) string {
	GinkgoHelper()
	shell := exec.Command("make", "--no-print-directory", "demo-shell", "HOST="+host)
	shell.Dir, shell.Stdin = filepath.Dir(demo.bin), strings.NewReader(commands+"\n")
	output, err := shell.Output() // make can warn about the make that runs these specs
	Expect(err).NotTo(HaveOccurred())
	return string(output)
}
