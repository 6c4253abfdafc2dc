package pool_test

import (
	"errors"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vincent-petithory/dataurl"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// withKubelet gives a pool a kubelet section, with apiVersion and kind if it has no kind.
func withKubelet(p poolv1.MachineConfigPool, section string) poolv1.MachineConfigPool {
	if !strings.Contains(section, `"kind"`) {
		section = strings.Replace(section, "{", `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration",`, 1)
	}
	p.Spec.Kubelet.Configuration = &runtime.RawExtension{Raw: []byte(section)}
	return p
}

var _ = Describe("The kubelet section of a pool", func() {
	const workerPath, poolPath = "/etc/kubernetes/kubelet.conf.d/97-poolboot-worker.conf", "/etc/kubernetes/kubelet.conf.d/98-poolboot-pool.conf"
	const head = "Change it there.\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	ofWorker := "# From spec.kubelet.configuration of the MachineConfigPool worker. " + head
	ofInfra := "# From spec.kubelet.configuration of the MachineConfigPool infra. " + head
	config := newConfig("00-worker", "worker", "/etc/motd", "worker")

	render := func(role string, worker, infra poolv1.MachineConfigPool) (*pool.Rendered, error) {
		return pool.Render(role, []poolv1.MachineConfigPool{worker, infra}, []poolv1.MachineConfig{config})
	}
	rendered := func(role string, worker, infra poolv1.MachineConfigPool) *pool.Rendered {
		GinkgoHelper()
		rendered, err := render(role, worker, infra)
		Expect(err).NotTo(HaveOccurred())
		return rendered
	}
	dropIns := func(rendered *pool.Rendered) map[string]string {
		GinkgoHelper()
		config, err := ignition.Parse(rendered.Spec.Config.Raw)
		Expect(err).NotTo(HaveOccurred())
		files := map[string]string{}
		for _, file := range config.Storage.Files {
			if file.Path == "/etc/motd" {
				continue
			}
			Expect(file.Mode).To(HaveValue(Equal(0o644)))
			Expect(file.Overwrite).To(HaveValue(BeTrue()))
			url, err := dataurl.DecodeString(*file.Contents.Source)
			Expect(err).NotTo(HaveOccurred())
			files[file.Path] = string(url.Data)
		}
		return files
	}

	worker, infra := newPool("worker"), newPool("infra")
	bigWorker, bigInfra := withKubelet(worker, `{"maxPods":100,"podsPerCore":10}`), withKubelet(infra, `{"maxPods":500}`)

	It("is a drop-in on Machines of worker, overridden by that of a custom pool", func() {
		Expect(dropIns(rendered("worker", bigWorker, bigInfra))).To(Equal(map[string]string{workerPath: ofWorker + "maxPods: 100\npodsPerCore: 10\n"}))
		Expect(dropIns(rendered("infra", bigWorker, bigInfra))).To(Equal(map[string]string{
			workerPath: ofWorker + "maxPods: 100\npodsPerCore: 10\n", poolPath: ofInfra + "maxPods: 500\n"}))
		Expect(dropIns(rendered("infra", bigWorker, infra))).To(HaveLen(1))
		Expect(dropIns(rendered("infra", worker, bigInfra))).To(HaveKey(poolPath))
		Expect(workerPath < poolPath).To(BeTrue(), "the kubelet reads them in this order")
	})

	It("has no drop-in when it is empty", func() {
		plain := rendered("infra", worker, infra)
		const nothing = `{"kind":"KubeletConfiguration","apiVersion":"kubelet.config.k8s.io/v1beta1"}`
		Expect(rendered("infra", withKubelet(worker, nothing), withKubelet(infra, nothing))).To(Equal(plain))
		Expect(rendered("worker", worker, bigInfra)).To(Equal(rendered("worker", worker, infra)))
	})

	It("changes the rendered config's name only with its content", func() {
		names := map[string]bool{}
		for _, of := range [][2]poolv1.MachineConfigPool{{worker, infra}, {bigWorker, infra}, {worker, bigInfra}, {bigWorker, bigInfra}} {
			names[rendered("infra", of[0], of[1]).Name] = true
		}
		Expect(names).To(HaveLen(4))
		Expect(rendered("worker", withKubelet(worker, "{ \"podsPerCore\": 10,\n \"maxPods\": 100 }"), infra)).To(Equal(rendered("worker", bigWorker, infra)))
	})

	It("is an origin", func() {
		of := rendered("infra", bigWorker, bigInfra)
		Expect(of.Source).To(Equal([]string{"00-worker"}))
		Expect(of.Kubelets).To(Equal([]string{"worker", "infra"}))
		Expect(of.Origins).To(ConsistOf(
			pool.Origin{Kind: pool.KindFile, Name: "/etc/motd", MachineConfig: "00-worker"},
			pool.Origin{Kind: pool.KindFile, Name: workerPath, Pool: "worker", Field: "spec.kubelet.configuration"},
			pool.Origin{Kind: pool.KindFile, Name: poolPath, Pool: "infra", Field: "spec.kubelet.configuration"}))
	})

	DescribeTable("is refused with the pool and the field",
		func(worker, infra poolv1.MachineConfigPool, want string) {
			_, err := render("infra", worker, infra)
			Expect(err).To(MatchError(HavePrefix(want)))
			Expect(errors.As(err, new(*pool.KubeletError))).To(BeTrue())
		},
		Entry("its own", worker, withKubelet(infra, `{"maxPod":5}`), `MachineConfigPool "infra": spec.kubelet.configuration.maxPod: Invalid value`),
		Entry("one of another kind", worker, withKubelet(infra, `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"Kubelet"}`),
			`MachineConfigPool "infra": spec.kubelet.configuration.kind: Unsupported value: "Kubelet": supported values: "KubeletConfiguration"`),
		Entry("one without apiVersion", worker, withKubelet(infra, `{"kind":"KubeletConfiguration"}`), `MachineConfigPool "infra": spec.kubelet.configuration.apiVersion: Required value`),
		Entry("a field that a pool must not set", worker, withKubelet(infra, `{"providerID":"a"}`), `MachineConfigPool "infra": spec.kubelet.configuration.providerID: Forbidden`),
		Entry("a static policy for CPUs without reserved CPUs", worker, withKubelet(infra, `{"cpuManagerPolicy":"static"}`), `MachineConfigPool "infra": spec.kubelet.configuration.cpuManagerPolicy: Invalid value: "static"`),
		Entry("a static policy for memory without reserved memory", worker, withKubelet(infra, `{"memoryManagerPolicy":"Static"}`), `MachineConfigPool "infra": spec.kubelet.configuration.memoryManagerPolicy: Invalid value: "Static"`),
		Entry("a value", worker, withKubelet(infra, `{"maxPods":-5}`), `MachineConfigPool "infra": spec.kubelet.configuration.maxPods: Invalid value: -5`),
		Entry("that of worker, also if the pool overrides the field", withKubelet(worker, `{"maxPods":-5}`), bigInfra, `MachineConfigPool "worker": spec.kubelet.configuration.maxPods: Invalid value: -5`),
		Entry("the endpoint of the container runtime, empty", worker, withKubelet(infra, `{"containerRuntimeEndpoint":""}`),
			`MachineConfigPool "infra": spec.kubelet.configuration.containerRuntimeEndpoint: Invalid value: "": would erase the endpoint that the host has`),
		Entry("a zero value over that of worker", withKubelet(worker, `{"streamingConnectionIdleTimeout":"1h"}`), withKubelet(infra, `{"streamingConnectionIdleTimeout":"0s"}`),
			`MachineConfigPool "infra": spec.kubelet.configuration.streamingConnectionIdleTimeout: Invalid value: "0s": would erase 1h, which the worker pool sets`),
		Entry("a zero value in an object over that of worker", withKubelet(worker, `{"memorySwap":{"swapBehavior":"LimitedSwap"}}`), withKubelet(infra, `{"memorySwap":{"swapBehavior":""}}`),
			`MachineConfigPool "infra": spec.kubelet.configuration.memorySwap.swapBehavior: Invalid value: "": would erase LimitedSwap, which the worker pool sets`),
		Entry("the two together", withKubelet(worker, `{"imageGCLowThresholdPercent":78}`), withKubelet(infra, `{"imageGCHighThresholdPercent":81,"imageGCLowThresholdPercent":81}`),
			`MachineConfigPool "infra": spec.kubelet.configuration.imageGCLowThresholdPercent`),
		Entry("only the two together", withKubelet(worker, `{"shutdownGracePeriod":"30s"}`), withKubelet(infra, `{"shutdownGracePeriodByPodPriority":[{"priority":1,"shutdownGracePeriodSeconds":5}]}`),
			`MachineConfigPool "infra": spec.kubelet.configuration.shutdownGracePeriodByPodPriority`),
	)

	It("is refused with a note if the error is only with the fields of worker's", func() {
		_, err := render("infra", withKubelet(worker, `{"shutdownGracePeriod":"30s"}`), withKubelet(infra, `{"shutdownGracePeriodByPodPriority":[{"priority":1,"shutdownGracePeriodSeconds":5}]}`))
		Expect(err).To(MatchError(HaveSuffix(" (it inherits fields of the worker pool)")))
	})

	It("can have a static policy for CPUs that worker reserves, or each host", func() {
		static := withKubelet(infra, `{"cpuManagerPolicy":"static"}`)
		Expect(pool.CheckKubelet(&static, ptr.To(withKubelet(worker, `{"kubeReserved":{"cpu":"1"}}`)))).To(Succeed())
		sizing := worker.DeepCopy()
		sizing.Spec.Kubelet.AutoSizingReserved = ptr.To(true)
		Expect(pool.CheckKubelet(&static, sizing)).To(Succeed())
		static.Spec.Kubelet.AutoSizingReserved = ptr.To(false)
		Expect(pool.CheckKubelet(&static, sizing)).NotTo(Succeed())
	})

	It("can depend on a field of worker's", func() {
		Expect(pool.CheckKubelet(&bigInfra, nil)).To(Succeed())
		pulls := withKubelet(infra, `{"maxParallelImagePulls":5}`)
		Expect(pool.CheckKubelet(&pulls, nil)).NotTo(Succeed())
		parallel := withKubelet(worker, `{"serializeImagePulls":false}`)
		Expect(pool.CheckKubelet(&pulls, &parallel)).To(Succeed())
	})
})
