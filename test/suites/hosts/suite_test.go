// Package hosts_test tests hosts in Linux namespaces: what a BMC does to them, and what systemd, the container runtime
// and the kubelet do on them.
package hosts_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(ownerVariable); dir != "" {
		own(dir)
		return
	}
	os.Exit(m.Run())
}

func TestHosts(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	RunSpecs(t, "Hosts in namespaces")
}

// newRack returns a rack that is removed at the end of the spec or container.
func newRack(ctx context.Context) *baremetal.Rack {
	GinkgoHelper()
	rack, err := baremetal.NewRack(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(rack.Close)
	return rack
}

// newServer returns a server at a free port of an address, for Start or StartTLS. It is closed at the end of the spec
// or container, with its connections: a request can wait.
func newServer(ctx context.Context, address string, answer http.HandlerFunc) *httptest.Server {
	GinkgoHelper()
	server := httptest.NewUnstartedServer(answer)
	server.Listener = listen(ctx, address)
	DeferCleanup(server.Close)
	DeferCleanup(server.CloseClientConnections)
	return server
}

// newHost returns a host of a rack that is off, with a deployed image. Its console is in the spec's output.
func newHost(rack *baremetal.Rack, name string, image baremetal.Image, config map[string]any) *baremetal.Host {
	GinkgoHelper()
	return newHostWithUserData(rack, name, image, document(config))
}

func newHostWithUserData(rack *baremetal.Rack, name string, image baremetal.Image, userData []byte) *baremetal.Host {
	GinkgoHelper()
	h, err := rack.NewHost(baremetal.HostOptions{Name: name, Dir: GinkgoT().TempDir(), Log: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(h.PowerCut)
	DeferCleanup(func(ctx SpecContext) {
		if CurrentSpecReport().Failed() {
			journal, err := h.Journal(ctx, "--lines=200")
			GinkgoWriter.Println("The journal of", name, err, "\n"+journal)
		}
	})
	Expect(h.Deploy(image, userData)).To(Succeed())
	return h
}

// waitForBoot waits until systemd has started everything on the host, and returns the ID of the boot.
func waitForBoot(ctx context.Context, h *baremetal.Host) (bootID string) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		if err := h.Err(); err != nil {
			StopTrying(err.Error()).Now()
		}
		bootID = h.BootID()
		// It waits on the host: each program that this process starts there costs much more than a turn of this loop.
		_, err := h.Run(ctx, "sh", "-c", "until systemctl --quiet is-active multi-user.target; do sleep 0.2; done")
		g.Expect(err).NotTo(HaveOccurred())
	}).Should(Succeed())
	return bootID
}

// waitForAnotherBoot is waitForBoot after a reboot.
func waitForAnotherBoot(ctx context.Context, h *baremetal.Host, previous string) {
	GinkgoHelper()
	Eventually(ctx, h.BootID).ShouldNot(Or(BeEmpty(), Equal(previous)))
	waitForBoot(ctx, h)
}

// reportStages reports when each step of the last boot was reached, and that a last stage is reached now.
func reportStages(h *baremetal.Host, last string) {
	GinkgoHelper()
	on := h.When(baremetal.PoweredOn)
	var report strings.Builder
	for _, event := range h.Events() {
		if !event.Time.Before(on) {
			fmt.Fprintf(&report, "%s %.1f s, ", event.Step, event.Time.Sub(on).Seconds())
		}
	}
	AddReportEntry("stages of a boot", fmt.Sprintf("%s%s %.1f s", &report, last, time.Since(on).Seconds()))
}

// reportCost reports what a host that has booted once has cost: the size of its disk, the memory of its processes, and
// the processor time of all its processes since power-on.
func reportCost(ctx context.Context, h *baremetal.Host, last string) {
	GinkgoHelper()
	measure := func(script string) (value float64) {
		GinkgoHelper()
		output, err := h.Run(ctx, "sh", "-c", script)
		Expect(err).NotTo(HaveOccurred())
		_, err = fmt.Sscan(output, &value)
		Expect(err).NotTo(HaveOccurred(), output)
		return value
	}
	// Each host has control groups of its own, of version 1 or 2. Processes can exit while their memory is summed up.
	seconds := measure(`awk '{ print $1 / 1e9 }' /sys/fs/cgroup/cpuacct/cpuacct.usage 2>/dev/null || awk '/^usage_usec/ { print $2 / 1e6 }' /sys/fs/cgroup/cpu.stat`)
	memory := measure(`cat /proc/[0-9]*/smaps_rollup 2>/dev/null | awk '/^Pss:/ { kib += $2 } END { print kib / 1024 }'`)
	containerd := measure(`awk '/^Pss:/ { print $2 / 1024 }' "/proc/$(pidof containerd)/smaps_rollup"`)
	disk, err := h.DiskUsage()
	Expect(err).NotTo(HaveOccurred())
	AddReportEntry("cost of a host", fmt.Sprintf("%s: disk %.0f MiB, memory %.0f MiB, of which containerd has %.0f MiB, processor time %.1f s",
		last, float64(disk)/(1<<20), memory, containerd, seconds))
}

// count returns how often a step happened.
func count(h *baremetal.Host, step baremetal.Step) int {
	times := 0
	for _, event := range h.Events() {
		if event.Step == step {
			times++
		}
	}
	return times
}

// document is an Ignition config.
func document(config map[string]any) []byte {
	GinkgoHelper()
	config["ignition"] = map[string]any{"version": "3.4.0"}
	raw, err := json.Marshal(config)
	Expect(err).NotTo(HaveOccurred())
	return raw
}

func units(all ...map[string]any) map[string]any { return map[string]any{"units": all} }

func unit(name string, lines ...string) map[string]any {
	return map[string]any{"name": name, "enabled": true, "contents": strings.Join(lines, "\n") + "\n"}
}

func files(all ...map[string]any) map[string]any { return map[string]any{"files": all} }

func file(path string, mode int, text string) map[string]any {
	return map[string]any{"path": path, "mode": mode, "overwrite": true,
		"contents": map[string]any{"source": dataURL(text)}}
}

func dataURL(text string) string {
	return "data:;base64," + base64.StdEncoding.EncodeToString([]byte(text))
}
