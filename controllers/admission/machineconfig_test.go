package admission

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

func machineConfig(name, ignition, butane string) *poolv1.MachineConfig {
	c := &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: poolv1.MachineConfigSpec{Butane: butane}}
	if ignition != "" {
		c.Spec.Config = raw(ignition)
	}
	return c
}

// renderedConfig returns a rendered config of the pool infra, named as it must be.
func renderedConfig() *poolv1.MachineConfig {
	c := machineConfig("", `{"ignition":{"version":"3.5.0"}}`, "")
	c.Labels = map[string]string{poolv1.RenderedForLabel: "infra"}
	var err error
	c.Name, err = pool.NameFor("infra", c.Spec)
	Expect(err).NotTo(HaveOccurred())
	return c
}

var _ = Describe("MachineConfig webhook", func() {
	webhook := &MachineConfig{}

	DescribeTable("takes what Poolboot can render",
		func(config *poolv1.MachineConfig) {
			_, err := webhook.ValidateCreate(ctx(), config)
			Expect(err).NotTo(HaveOccurred())
		},
		Entry("Ignition 2.2", machineConfig("50-infra", `{"ignition":{"version":"2.2.0"},"storage":{"files":[{"filesystem":"root","path":"/etc/infratest","contents":{"source":"data:,infra"},"mode":420}]}}`, "")),
		Entry("Ignition 3.5", machineConfig("50-infra", `{"ignition":{"version":"3.5.0"}}`, "")),
		Entry("Butane", machineConfig("50-infra", "", "variant: fcos\nversion: 1.6.0\nstorage:\n  files:\n  - path: /etc/infratest\n    contents:\n      inline: infra\n")),
		Entry("nothing but kernel arguments", &poolv1.MachineConfig{Spec: poolv1.MachineConfigSpec{KernelArguments: []string{"quiet"}}}),
	)

	DescribeTable("refuses what would fail on the host and names the place",
		func(ignition, butane, fieldPath string, words ...string) {
			_, err := webhook.ValidateCreate(ctx(), machineConfig("50-infra", ignition, butane))
			Expect(err).To(MatchError(ContainSubstring(`MachineConfig.pool.cluster.x-k8s.io "50-infra" is invalid`)))
			Expect(err).To(refuse(fieldPath, words...))
		},
		Entry("an unknown version", `{"ignition":{"version":"9.9.0"}}`, "", "spec.config.ignition.version", "9.9.0"),
		Entry("a relative path", `{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/a"},{"path":"etc/b"}]}}`, "", "spec.config.storage.files[1].path"),
		Entry("more bytes than a pool can render, though not more characters", `{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/a","contents":{"source":"data:,`+strings.Repeat("é", 750_000)+`"}}]}}`, "",
			"spec.config", "1468006 bytes"),
		Entry("Butane with a key that does not exist", "", "variant: fcos\nversion: 1.6.0\nstorage:\n  filez: []\n", "spec.butane.storage.filez", "line 4"),
		Entry("Butane that is no YAML", "", "variant: [", "spec.butane"),
		Entry("a path that is Poolboot's", `{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/hostname","contents":{"source":"data:,a"}}]}}`, "",
			"spec.config.storage.files[0].path", "/etc/hostname"),
		Entry("the kubelet's unit", `{"ignition":{"version":"3.4.0"},"systemd":{"units":[{"name":"kubelet.service","contents":"[Service]\nExecStart=/bin/true\n"}]}}`, "",
			"spec.config.systemd.units[0].contents", "kubelet.service"),
	)

	It("refuses kernel arguments that are Poolboot's", func() {
		_, err := webhook.ValidateCreate(ctx(), &poolv1.MachineConfig{Spec: poolv1.MachineConfigSpec{KernelArguments: []string{"quiet", "systemd.hostname=a"}}})
		Expect(err).To(refuse("spec.kernelArguments[1]", "systemd.hostname=a"))
	})

	Describe("rendered configs", func() {
		It("are taken when their name is that of their content", func() {
			_, err := webhook.ValidateCreate(ctx(), renderedConfig())
			Expect(err).NotTo(HaveOccurred())
		})

		It("are taken with what pools say of their kubelets, which no other MachineConfig may write", func() {
			worker, infra := aPool("worker", "worker", kubelets(`{"maxPods":100}`)), aPool("infra", "infra", kubelets(`{"maxPods":500}`))
			rendered, err := pool.Render("infra", []poolv1.MachineConfigPool{*worker, *infra}, nil)
			Expect(err).NotTo(HaveOccurred())
			config := &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: rendered.Name, Labels: map[string]string{poolv1.RenderedForLabel: "infra"}}, Spec: rendered.Spec}
			Expect(webhook.ValidateCreate(ctx(), config)).Error().NotTo(HaveOccurred())
			config.Name = "50-infra"
			Expect(webhook.ValidateCreate(ctx(), config)).Error().To(And(
				refuse("spec.config.storage.files[0].path", "97-poolboot-worker.conf", "set spec.kubeletConfiguration"), refuse("spec.config.storage.files[1].path", "98-poolboot-pool.conf")))
		})

		It("are refused with anything else that is Poolboot's", func() {
			config := renderedConfig()
			config.Spec.Config = raw(`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/kubernetes/kubelet.conf.d/98-poolboot-pool.conf","contents":{"source":"data:,providerID:%20a"}},{"path":"/etc/hostname"}]}}`)
			Expect(webhook.ValidateCreate(ctx(), config)).Error().To(And(
				refuse("spec.config.storage.files[0].contents", "providerID"), refuse("spec.config.storage.files[1].path", "/etc/hostname")))
		})

		DescribeTable("are refused when it is not",
			func(spoil func(*poolv1.MachineConfig)) {
				config := renderedConfig()
				spoil(config)
				_, err := webhook.ValidateCreate(ctx(), config)
				Expect(err).To(refuse("metadata.name", "named by their content", "use another name"))
			},
			Entry("other content", func(c *poolv1.MachineConfig) { c.Spec.KernelArguments = []string{"quiet"} }),
			Entry("another pool", func(c *poolv1.MachineConfig) { c.Labels[poolv1.RenderedForLabel] = "worker" }),
			Entry("no pool", func(c *poolv1.MachineConfig) { c.Labels = nil }),
			Entry("a name that a person chose", func(c *poolv1.MachineConfig) { c.Name = "rendered-mine" }),
		)

		It("never change", func() {
			before, after := renderedConfig(), renderedConfig()
			after.Spec.OSImageURL = "quay.io/other"
			_, err := webhook.ValidateUpdate(ctx(), before, after)
			Expect(err).To(refuse("metadata.name", "never change"))
		})
	})

	It("lets an object that older rules took be labelled and deleted", func() {
		before := machineConfig("50-infra", `{"ignition":{"version":"9.9.0"}}`, "")
		after := before.DeepCopy()
		after.Labels = map[string]string{"a": "b"}
		Expect(webhook.ValidateUpdate(ctx(), before, after)).Error().NotTo(HaveOccurred())
		Expect(webhook.ValidateDelete(ctx(), after)).Error().NotTo(HaveOccurred())
	})

	It("holds an update to the same rules", func() {
		before, after := machineConfig("50-infra", "", ""), machineConfig("50-infra", `{"ignition":{"version":"9.9.0"}}`, "")
		_, err := webhook.ValidateUpdate(ctx(), before, after)
		Expect(err).To(refuse("spec.config.ignition.version"))
	})
})
