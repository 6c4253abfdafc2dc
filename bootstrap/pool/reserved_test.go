package pool_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

var _ = Describe("autoSizingReserved of a pool", func() {
	auto := func(p poolv1.MachineConfigPool, value *bool) poolv1.MachineConfigPool {
		p.Spec.Kubelet.AutoSizingReserved = value
		return p
	}
	worker, infra := newPool("worker"), newPool("infra")
	const workerLink, poolLink = "/etc/kubernetes/kubelet.conf.d/97-poolboot-worker-reserved.conf", "/etc/kubernetes/kubelet.conf.d/98-poolboot-pool-reserved.conf"

	render := func(pools ...poolv1.MachineConfigPool) (*pool.Rendered, ignition.Config) {
		GinkgoHelper()
		rendered, err := pool.Render(pools[len(pools)-1].Spec.PoolRole, pools, nil)
		Expect(err).NotTo(HaveOccurred())
		config, err := ignition.Parse(rendered.Spec.Config.Raw)
		Expect(err).NotTo(HaveOccurred())
		return rendered, config
	}

	DescribeTable("is that of the pool or, without one, that of worker",
		func(ofWorker, ofInfra *bool, link string) {
			_, config := render(auto(worker, ofWorker), auto(infra, ofInfra))
			if link == "" {
				Expect(config.Storage.Links).To(BeEmpty())
				Expect(config.Systemd.Units).To(BeEmpty())
				return
			}
			Expect(config.Storage.Links).To(ConsistOf(And(HaveField("Path", link), HaveField("Target", HaveValue(Equal("/run/poolboot/system-reserved.conf"))))))
			Expect(config.Storage.Files).To(ConsistOf(HaveField("Path", "/etc/poolboot/system-reserved.sh")))
			Expect(*config.Systemd.Units[0].Dropins[0].Contents).To(Equal("[Service]\nExecStartPre=/bin/sh /etc/poolboot/system-reserved.sh /proc/meminfo /sys/devices/system/cpu/online /run/poolboot/system-reserved.conf\n"))
		},
		Entry("of neither", nil, nil, ""),
		Entry("of worker", ptr.To(true), nil, workerLink),
		Entry("of the pool", nil, ptr.To(true), poolLink),
		Entry("of both", ptr.To(true), ptr.To(true), poolLink),
		Entry("of the pool, off", ptr.To(true), ptr.To(false), ""),
		Entry("of worker, off", ptr.To(false), nil, ""),
		Entry("of the pool, with worker's off", ptr.To(false), ptr.To(true), poolLink),
	)

	It("is overridden by the kubelet configuration of the same pool, and overrides that of worker", func() {
		paths := []string{workerLink, ignition.WorkerKubeletPath, poolLink, ignition.PoolKubeletPath}
		for i := range len(paths) - 1 { // the kubelet reads them in this order
			Expect(filepath.Base(paths[i]) < filepath.Base(paths[i+1])).To(BeTrue(), paths[i])
		}
	})

	It("is an origin, together with the wrapper", func() {
		of, config := render(func() poolv1.MachineConfigPool {
			p := auto(worker, ptr.To(true))
			p.Spec.Kubelet.Wrapper = []string{"/usr/bin/nice"}
			return p
		}(), infra)
		Expect(of.Origins).To(ContainElements(And(HaveField("Pool", "worker"), HaveField("Name", "/etc/poolboot/system-reserved.sh")),
			And(HaveField("Pool", "worker"), HaveField("Name", ContainSubstring("15-poolboot-reserved.conf")))))
		Expect(config.Systemd.Units).To(ConsistOf(HaveField("Dropins", HaveLen(2))))
	})

	It("is refused together with systemReserved of the same pool", func() {
		_, err := pool.Render("infra", []poolv1.MachineConfigPool{worker, auto(withKubelet(infra, `{"systemReserved":{"cpu":"1"}}`), ptr.To(true))}, nil)
		Expect(err).To(MatchError(ContainSubstring(`MachineConfigPool "infra": spec.kubelet.configuration.systemReserved: Forbidden: kubelet.autoSizingReserved computes it on each host: remove one of them`)))
		render(auto(worker, ptr.To(true)), withKubelet(infra, `{"systemReserved":{"cpu":"1"}}`))
		render(withKubelet(worker, `{"systemReserved":{"cpu":"1"}}`), auto(infra, ptr.To(true)))
		render(worker, auto(withKubelet(infra, `{"systemReserved":{"cpu":"1"}}`), ptr.To(false)))
	})

	DescribeTable("notes which reservation applies if worker and a custom pool have different ones",
		func(worker, infra poolv1.MachineConfigPool, notes ...string) {
			of, _ := render(worker, infra)
			Expect(of.Notes).To(HaveExactElements(notes))
		},
		Entry("one resource over computed ones", auto(worker, ptr.To(true)), withKubelet(infra, `{"systemReserved":{"cpu":"1","pid":"1000"}}`),
			`MachineConfigPool "infra": spec.kubelet.configuration.systemReserved: it overrides what spec.kubelet.autoSizingReserved of the worker pool computes for cpu, `+
				`but not for ephemeral-storage, memory: to compute nothing, set spec.kubelet.autoSizingReserved to false`),
		Entry("all resources over computed ones", auto(worker, ptr.To(true)), withKubelet(infra, `{"systemReserved":{"cpu":"1","memory":"1Gi","ephemeral-storage":"1Gi"}}`),
			`MachineConfigPool "infra": spec.kubelet.configuration.systemReserved: it overrides what spec.kubelet.autoSizingReserved of the worker pool computes for cpu, ephemeral-storage, memory`),
		Entry("computed ones over one resource", withKubelet(worker, `{"systemReserved":{"cpu":"1","pid":"1000"}}`), auto(infra, ptr.To(true)),
			`MachineConfigPool "infra": spec.kubelet.autoSizingReserved: what it computes overrides cpu in spec.kubelet.configuration.systemReserved of the worker pool`),
		Entry("only another resource", auto(worker, ptr.To(true)), withKubelet(infra, `{"systemReserved":{"pid":"1000"}}`)),
		Entry("nothing computed in the custom pool", auto(worker, ptr.To(true)), auto(withKubelet(infra, `{"systemReserved":{"cpu":"1"}}`), ptr.To(false))),
		Entry("nothing computed", worker, withKubelet(infra, `{"systemReserved":{"cpu":"1"}}`)),
	)

	Describe("on a host", func() {
		// run runs the script that a pool renders, with the files of a host.
		run := func(meminfo, cpus string) (dropin, output string) {
			GinkgoHelper()
			directory := GinkgoT().TempDir()
			at := func(name string) string { return filepath.Join(directory, name) }
			_, config := render(auto(worker, ptr.To(true)))
			script, err := ignition.Contents(config.Storage.Files[0].Contents, 1<<20)
			Expect(err).NotTo(HaveOccurred())
			Expect(os.WriteFile(at("script"), script, 0o600)).To(Succeed())
			for name, content := range map[string]string{"meminfo": meminfo, "cpus": cpus} {
				if content != "" {
					Expect(os.WriteFile(at(name), []byte(content), 0o600)).To(Succeed())
				}
			}
			text, err := exec.Command("/bin/sh", at("script"), at("meminfo"), at("cpus"), at("run/poolboot/out.conf")).CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), string(text))
			written, err := os.ReadFile(at("run/poolboot/out.conf"))
			Expect(err).NotTo(HaveOccurred())
			return string(written), string(text)
		}
		meminfo := func(kib int64) string {
			return fmt.Sprintf("MemTotal:       %d kB\nMemFree:         1 kB\n", kib)
		}
		want := func(cpu, memory string) string {
			return "# Computed by Poolboot whenever the kubelet starts, for autoSizingReserved of the MachineConfigPool.\napiVersion: kubelet.config.k8s.io/v1beta1\n" +
				"kind: KubeletConfiguration\nsystemReserved:\n  cpu: " + cpu + "\n  memory: " + memory + "\n  ephemeral-storage: 1Gi\n"
		}
		const gib = 1 << 20 // KiB

		DescribeTable("is computed by the table of OpenShift",
			func(gibibytes int64, cpus, cpu, memory string) {
				dropin, output := run(meminfo(gibibytes*gib), cpus+"\n")
				Expect(dropin).To(Equal(want(cpu, memory)))
				Expect(output).To(And(HavePrefix(fmt.Sprintf("poolboot: this host has %dMi of memory and ", gibibytes*1024)), ContainSubstring("the kubelet reserves cpu="+cpu+", memory="+memory)))
			},
			Entry(nil, int64(1), "0", "500m", "256Mi"),
			Entry(nil, int64(4), "0-3", "500m", "1024Mi"),
			Entry(nil, int64(8), "0-7", "500m", "1024Mi"),
			Entry(nil, int64(16), "0-15", "500m", "1515Mi"),
			Entry(nil, int64(32), "0-31", "500m", "2498Mi"),
			Entry(nil, int64(64), "0-63", "816m", "4464Mi"),
			Entry(nil, int64(128), "0-127", "1584m", "8396Mi"),
			Entry(nil, int64(256), "0-127,256-383", "3120m", "11018Mi"),
			Entry(nil, int64(1024), "0-36", "500m", "26746Mi"),
			Entry(nil, int64(2048), "0-37", "504m", "47718Mi"),
			Entry(nil, int64(8), "0,2,4-5,100", "500m", "1024Mi"),
		)

		It("is that of a second implementation", func() {
			for seed := range uint64(60) {
				random := rand.New(rand.NewPCG(seed, 0))
				kib, cpus := random.Int64N(1<<uint(12+random.IntN(24))), random.IntN(1024)
				kib += 1024
				gibibytes := float64(kib) / gib
				memory := 0.25*min(gibibytes, 4) + 0.06*(min(max(gibibytes, 8), 128)-8) + 0.02*max(gibibytes-128, 0)
				dropin, _ := run(meminfo(kib), fmt.Sprintf("0-%d\n", cpus))
				var cpu, mib int
				_, reserved, _ := strings.Cut(dropin, "systemReserved:\n")
				_, err := fmt.Sscanf(reserved, "  cpu: %dm\n  memory: %dMi\n", &cpu, &mib)
				Expect(err).NotTo(HaveOccurred())
				Expect(cpu).To(Equal(max(500, 60+12*cpus)))
				Expect(float64(mib)).To(BeNumerically("~", memory*1024, 1.01), fmt.Sprint(kib, " KiB"))
			}
		})

		DescribeTable("is the fixed default of OpenShift if the size is unknown",
			func(meminfo, cpus, cpu, memory, why string) {
				dropin, output := run(meminfo, cpus)
				Expect(dropin).To(Equal(want(cpu, memory)))
				Expect(output).To(ContainSubstring(why))
				Expect(strings.Count(output, "\n")).To(Equal(1), output)
			},
			Entry("without meminfo", "", "0-99", "1248m", "1Gi", "an unknown size of memory ("),
			Entry("without MemTotal", "MemFree: 1 kB\n", "0-99", "1248m", "1Gi", "an unknown size of memory ("),
			Entry("with a word", "MemTotal: much kB\n", "0-99", "1248m", "1Gi", "an unknown size of memory ("),
			Entry("with a negative number", "MemTotal: -5 kB\n", "0-99", "1248m", "1Gi", "an unknown size of memory ("),
			Entry("with more than the shell can count", "MemTotal: 99999999999999999999 kB\n", "0-99", "1248m", "1Gi", "an unknown size of memory ("),
			Entry("with a command", "MemTotal: $(reboot) kB\n", "0-99", "1248m", "1Gi", "an unknown size of memory ("),
			Entry("without a list of CPUs", meminfo(8*gib), "", "500m", "1024Mi", "an unknown number of CPUs ("),
			Entry("with a word for CPUs", meminfo(8*gib), "all", "500m", "1024Mi", "an unknown number of CPUs ("),
			Entry("with a reversed range of CPUs", meminfo(8*gib), "9-3", "500m", "1024Mi", "an unknown number of CPUs ("),
			Entry("with a CPU of more than the shell can count", meminfo(8*gib), "0-99999999999999999999", "500m", "1024Mi", "an unknown number of CPUs ("),
		)
	})
})
