package hosts_test

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

const cpuCheckpoint, memoryCheckpoint = "/var/lib/kubelet/cpu_manager_state", "/var/lib/kubelet/memory_manager_state"

// describePinning has the specs about what the real kubelet pins to CPUs and memory. The kubelet starts with a wrapper.
func describePinning(host func() *wrappedHost, wrapper ...string) {
	const (
		kubelet = `"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"`
		nothing = `{` + kubelet + `, "cpuManagerPolicy": "none", "memoryManagerPolicy": "None"}`
		pinned  = `{` + kubelet + `, "cpuManagerPolicy": "static", "reservedSystemCPUs": "0", "topologyManagerPolicy": "best-effort",
			"memoryManagerPolicy": "Static", "systemReserved": {"memory": "100Mi"}, "reservedMemory": [{"numaNode": 0, "limits": {"memory": "200Mi"}}]}`
	)
	assign := func(ctx context.Context, section string) (revision string) {
		GinkgoHelper()
		h := host()
		h.ran.Spec.Kubelet.AutoSizingReserved = nil
		h.ran.Spec.Kubelet.Configuration = &runtime.RawExtension{Raw: []byte(section)}
		return h.pool.assign(ctx, h.render(wrapper...))
	}
	expectPinned := func(ctx context.Context, cpus, memory string) {
		GinkgoHelper()
		h := host()
		Eventually(ctx, func(g Gomega) { // an undo ends when the kubelet runs; it writes its checkpoints a moment later
			g.Expect(readFile(ctx, h.Host, cpuCheckpoint)).To(ContainSubstring(`"policyName":"` + cpus + `"`))
			g.Expect(readFile(ctx, h.Host, memoryCheckpoint)).To(ContainSubstring(`"policyName":"` + memory + `"`))
			h.ready(ctx)(g)
		}).Should(Succeed())
	}

	It("lets the kubelet pin CPUs and memory on a running host, and not any more, without a reboot", func(ctx SpecContext) {
		h, boot := host(), waitForBoot(ctx, host().Host)
		Eventually(ctx, func(g Gomega) { h.ready(ctx)(g) }).Should(Succeed())
		for _, step := range [][]string{{pinned, "static", "Static"}, {nothing, "none", "None"}, {pinned, "static", "Static"}} {
			start := time.Now()
			revision := assign(ctx, step[0])
			Eventually(ctx, h.pool.state(ctx)).Should(Equal("Done " + revision))
			AddReportEntry("a change of pinning", step[1]+": "+time.Since(start).String())
			expectPinned(ctx, step[1], step[2])
		}
		Expect(waitForBoot(ctx, h.Host)).To(Equal(boot))
	}, SpecTimeout(3*time.Minute))

	It("is Ready again as it was before if the kubelet has started with other pinning and the update is undone", func(ctx SpecContext) {
		h := host()
		h.others = []poolv1.MachineConfig{h.ofPool("60-fails", map[string]any{"systemd": map[string]any{"units": []any{map[string]any{"name": "kubelet.service", "dropins": []any{
			map[string]any{"name": "60-fails.conf", "contents": "[Service]\nExecStartPost=/bin/sh -c \"until grep -q none " + cpuCheckpoint + "; do sleep 0.2; done; exit 1\"\n"}}}}}})}
		start := time.Now()
		revision := assign(ctx, nothing)
		Eventually(ctx, h.pool.state(ctx)).Should(Equal("Degraded " + revision))
		expectPinned(ctx, "static", "Static")
		AddReportEntry("an undone change of pinning", time.Since(start).String())
		h.others = nil
	}, SpecTimeout(3*time.Minute))

	It("boots if the checkpoints do not fit", func(ctx SpecContext) {
		h := host()
		boot := waitForBoot(ctx, h.Host)
		writeFile(ctx, h.Host, cpuCheckpoint, `{"policyName":"none","defaultCpuSet":"","checksum":0}`)
		writeFile(ctx, h.Host, memoryCheckpoint, `{"policyName":"None","machineState":{},"checksum":0}`)
		_, _ = h.Run(ctx, "systemctl", "reboot") // its connection can end first
		waitForAnotherBoot(ctx, h.Host, boot)
		Eventually(ctx, func(g Gomega) { g.Expect(h.ready(ctx)(g).Status.NodeInfo.BootID).NotTo(Equal(strings.TrimSpace(boot))) }).Should(Succeed())
		expectPinned(ctx, "static", "Static")
	}, SpecTimeout(3*time.Minute))
}
