package admission

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

func machineConfig(name, ignition, butane string) *poolv1.MachineConfig {
	config := &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: poolv1.MachineConfigSpec{Butane: butane}}
	if ignition != "" {
		config.Spec.Config = raw(ignition)
	}
	return config
}

// renderedConfig returns a rendered config of the pool infra with the correct name.
func renderedConfig() *poolv1.MachineConfig {
	config := machineConfig("", `{"ignition":{"version":"3.5.0"}}`, "")
	config.Labels = map[string]string{poolv1.RenderedForLabel: "infra"}
	var err error
	config.Name, err = pool.NameFor("infra", config.Spec)
	Expect(err).NotTo(HaveOccurred())
	return config
}

var _ = Describe("MachineConfig webhook", func() {
	webhook := &MachineConfig{Reader: newWebhook().Reader}

	It("warns of labels that no pool selects, also if they change later, and says what the pools select", func() {
		infra := newPool("infra", "infra")
		withPools := &MachineConfig{Reader: newWebhook(infra, newPool("gpu", "gpu", func(s *poolv1.MachineConfigPoolSpec) { s.MachineConfigSelector = nil })).Reader}
		config := machineConfig("50-infra", `{"ignition":{"version":"3.4.0"}}`, "")
		config.Namespace, config.Labels = infra.Namespace, map[string]string{"role": "infar"}
		warning := "metadata.labels: no pool selects them yet, so no host gets this MachineConfig. If you do not create its pool next, correct them: the pools select gpu: nothing, because spec.machineConfigSelector is not set; infra: role=infra"
		Expect(withPools.ValidateCreate(ctx(), config)).To(ConsistOf(warning))
		corrected := config.DeepCopy()
		corrected.Labels["role"] = "infra"
		Expect(withPools.ValidateUpdate(ctx(), config, corrected)).To(BeEmpty())
		Expect(withPools.ValidateUpdate(ctx(), corrected, config)).To(ConsistOf(warning))
		Expect(webhook.ValidateCreate(ctx(), config)).To(BeEmpty(), "there are no pools yet")
	})

	DescribeTable("accepts what Poolboot can render",
		func(config *poolv1.MachineConfig) {
			_, err := webhook.ValidateCreate(ctx(), config)
			Expect(err).NotTo(HaveOccurred())
		},
		Entry("Ignition 2.2", machineConfig("50-infra", `{"ignition":{"version":"2.2.0"},"storage":{"files":[{"filesystem":"root","path":"/etc/infratest","contents":{"source":"data:,infra"},"mode":420}]}}`, "")),
		Entry("Ignition 3.5", machineConfig("50-infra", `{"ignition":{"version":"3.5.0"}}`, "")),
		Entry("Butane", machineConfig("50-infra", "", "variant: fcos\nversion: 1.6.0\nstorage:\n  files:\n  - path: /etc/infratest\n    contents:\n      inline: infra\n")),
		Entry("only kernel arguments", &poolv1.MachineConfig{Spec: poolv1.MachineConfigSpec{KernelArguments: []string{"quiet"}}}),
	)

	DescribeTable("refuses what would fail on the host, and names the field",
		func(ignition, butane, fieldPath string, words ...string) {
			_, err := webhook.ValidateCreate(ctx(), machineConfig("50-infra", ignition, butane))
			Expect(err).To(MatchError(ContainSubstring(`MachineConfig.poolboot.io "50-infra" is invalid`)))
			Expect(err).To(beRefusedAt(fieldPath, words...))
		},
		Entry("an unknown version", `{"ignition":{"version":"9.9.0"}}`, "", "spec.config.ignition.version", "9.9.0"),
		Entry("contents with another hash", `{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/a"},{"path":"/etc/b","contents":{"source":"data:,b","verification":{"hash":"sha256-`+strings.Repeat("0", 64)+`"}}}]}}`, "",
			"spec.config.storage.files[1].contents.verification.hash", "correct the contents, or set sha512-"),
		Entry("Butane as Ignition", `{"variant":"fcos","version":"1.5.0"}`, "", "spec.config.variant", "kubectl poolboot convert --butane"),
		Entry("a relative path", `{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/a"},{"path":"etc/b"}]}}`, "", "spec.config.storage.files[1].path"),
		Entry("a key that Ignition would ignore", `{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/a","contents":{"inline":"hi"}}]}}`, "",
			"spec.config.storage.files[0].contents.inline", "would ignore it with its content", "data URL"),
		Entry("more bytes than a pool can render, but fewer characters", `{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/a","contents":{"source":"data:,`+strings.Repeat("é", 750_000)+`"}}]}}`, "",
			"spec.config", "1468006 bytes"),
		Entry("Butane with an unknown key", "", "variant: fcos\nversion: 1.6.0\nstorage:\n  filez: []\n", "spec.butane.storage.filez", "line 4"),
		Entry("Butane that is not YAML", "", "variant: [", "spec.butane"),
		Entry("a path that Poolboot manages", `{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/hostname","contents":{"source":"data:,a"}}]}}`, "",
			"spec.config.storage.files[0].path", "/etc/hostname"),
		Entry("a file below a file", `{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/x"},{"path":"/etc/x/y"}]}}`, "",
			"spec.config.storage.files[1].path", "/etc/x/y is below /etc/x, which is a file"),
		Entry("a section Install with which no unit is enabled", `{"ignition":{"version":"3.4.0"},"systemd":{"units":[{"name":"a.service","contents":"[Unit]\n[Install]\nAlso=other\n"}]}}`, "",
			"spec.config.systemd.units[0].contents", "a.service line 3: Also=other is not the name of a unit", "write other.service"),
		Entry("a unit that is no unit file", `{"ignition":{"version":"3.4.0"},"systemd":{"units":[{"name":"a.service","contents":"# a\nblah blah\n"}]}}`, "",
			"spec.config.systemd.units[0].contents", "a.service: it has no section", "[Service]"),
		Entry("a drop-in that is none", `{"ignition":{"version":"3.4.0"},"systemd":{"units":[{"name":"a.service","dropins":[{"name":"1.conf","contents":"CPUQuota=1%"}]}]}}`, "",
			"spec.config.systemd.units[0].dropins[0].contents", "drop-in 1.conf of a.service: it has no section"),
		Entry("the unit of the kubelet", `{"ignition":{"version":"3.4.0"},"systemd":{"units":[{"name":"kubelet.service","contents":"[Service]\nExecStart=/bin/true\n"}]}}`, "",
			"spec.config.systemd.units[0].contents", "kubelet.service"),
	)

	It("warns of keys that Ignition ignores without a loss", func() {
		warnings, err := webhook.ValidateCreate(ctx(), machineConfig("50-a", `{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/a","filesystem":"root"}]}}`, ""))
		Expect(err).NotTo(HaveOccurred())
		Expect(warnings).To(ConsistOf(HavePrefix("spec.config.storage.files[0].filesystem: Ignition 3.4.0 ignores this key")))
	})

	It("warns of a unit that is enabled and that nothing starts", func() {
		const install = `[Install]\nWantedBy=multi-user.target\n`
		warnings, err := webhook.ValidateCreate(ctx(), machineConfig("50-a", `{"ignition":{"version":"3.4.0"},"systemd":{"units":[
			{"name":"no.service","enabled":true,"contents":"[Service]\nExecStart=/bin/true\n"},{"name":"image.service","enabled":true},
			{"name":"yes.service","enabled":true,"contents":"[Unit]\n`+install+`"},{"name":"with.service","enabled":true,"contents":"[Unit]","dropins":[{"name":"1.conf","contents":"`+install+`"}]},
			{"name":"other.service","enabled":false,"contents":"[Unit]"},{"name":"empty.service","contents":"# nothing\n"}]}}`, ""))
		Expect(err).NotTo(HaveOccurred())
		Expect(warnings).To(ConsistOf(HavePrefix("spec.config.systemd.units[0].enabled: no.service has no section [Install], so nothing starts it: add one")))
	})

	It("warns of sections of units and drop-ins that systemd does not know", func() {
		warnings, err := webhook.ValidateCreate(ctx(), machineConfig("50-a", `{"ignition":{"version":"3.4.0"},"systemd":{"units":[
			{"name":"a.service","contents":"[Unit]\nDescription=a\n[Servce]\nExecStart=/bin/true\n[X-Mine]\nA=1\n"},
			{"name":"b.mount","dropins":[{"name":"1.conf","contents":"[mount]\nWhat=a\n"}]}]}}`, ""))
		Expect(err).NotTo(HaveOccurred())
		Expect(warnings).To(ConsistOf(HavePrefix("spec.config.systemd.units[0].contents: systemd ignores the section [Servce]"),
			HavePrefix("spec.config.systemd.units[1].dropins[0].contents: systemd ignores the section [mount]")))
	})

	DescribeTable("refuses blanks that would split a kernel argument", func(argument string, isRefused bool) {
		_, err := webhook.ValidateCreate(ctx(), &poolv1.MachineConfig{Spec: poolv1.MachineConfigSpec{KernelArguments: []string{argument}}})
		if !isRefused {
			Expect(err).NotTo(HaveOccurred())
			return
		}
		Expect(err).To(beRefusedAt("spec.kernelArguments[0]", "remove the blank"))
	},
		Entry("around =", "hugepages = 16", true), Entry("before =", "hugepages =16", true), Entry("behind =", "hugepages= 16", true),
		Entry("at the beginning", " x=1", true), Entry("at the end", "x=1\t", true), Entry("only blanks", "  ", true),
		Entry("between arguments", "hugepagesz=1G hugepages=16", false), Entry("in quotes", `dyndbg="file a.c +p; x = 1"`, false), Entry("without a value", "x=", false),
	)

	It("refuses kernel arguments that Poolboot manages", func() {
		_, err := webhook.ValidateCreate(ctx(), &poolv1.MachineConfig{Spec: poolv1.MachineConfigSpec{KernelArguments: []string{"quiet", "systemd.hostname=a"}}})
		Expect(err).To(beRefusedAt("spec.kernelArguments[1]", "systemd.hostname=a"))
	})

	Describe("rendered configs", func() {
		It("are accepted if their name matches their content", func() {
			_, err := webhook.ValidateCreate(ctx(), renderedConfig())
			Expect(err).NotTo(HaveOccurred())
		})

		It("are accepted with the kubelet configuration of pools, which no other MachineConfig can set", func() {
			worker, infra := newPool("worker", "worker", kubeletConfiguration(`{"maxPods":100}`)), newPool("infra", "infra", kubeletConfiguration(`{"maxPods":500}`))
			rendered, err := pool.Render("infra", []poolv1.MachineConfigPool{*worker, *infra}, nil)
			Expect(err).NotTo(HaveOccurred())
			config := &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: rendered.Name, Labels: map[string]string{poolv1.RenderedForLabel: "infra"}}, Spec: rendered.Spec}
			Expect(webhook.ValidateCreate(ctx(), config)).Error().NotTo(HaveOccurred())
			config.Name = "50-infra"
			Expect(webhook.ValidateCreate(ctx(), config)).Error().To(And(
				beRefusedAt("spec.config.storage.files[0].path", "97-poolboot-worker.conf", "set spec.kubelet.configuration"), beRefusedAt("spec.config.storage.files[1].path", "98-poolboot-pool.conf")))
		})

		It("are accepted with the kubelet wrapper and autoSizingReserved of pools, which no other MachineConfig can set", func() {
			worker, infra := newPool("worker", "worker"), newPool("infra", "infra")
			worker.Spec.Kubelet.Wrapper = []string{"/usr/bin/nsenter", "--mount=/run/kubens/mnt"}
			infra.Spec.Kubelet.AutoSizingReserved = ptr.To(true)
			rendered, err := pool.Render("infra", []poolv1.MachineConfigPool{*worker, *infra}, nil)
			Expect(err).NotTo(HaveOccurred())
			config := &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: rendered.Name, Labels: map[string]string{poolv1.RenderedForLabel: "infra"}}, Spec: rendered.Spec}
			Expect(webhook.ValidateCreate(ctx(), config)).Error().NotTo(HaveOccurred())
			config.Name = "50-infra"
			Expect(webhook.ValidateCreate(ctx(), config)).Error().To(And(
				beRefusedAt("spec.config.storage.files[0].path", "/etc/poolboot"), beRefusedAt("spec.config.storage.links[0].path", "set spec.kubelet.autoSizingReserved"),
				beRefusedAt("spec.config.systemd.units[0].dropins[0].name", "spec.kubelet.autoSizingReserved"), beRefusedAt("spec.config.systemd.units[0].dropins[1].name", "spec.kubelet.wrapper")))

			By("a command without the flags that put the Node into its pool")
			config.Spec.Config.Raw = []byte(strings.ReplaceAll(string(config.Spec.Config.Raw), "$POOLBOOT_KUBELET_ARGS", ""))
			config.Name, err = pool.NameFor("infra", config.Spec)
			Expect(err).NotTo(HaveOccurred())
			Expect(webhook.ValidateCreate(ctx(), config)).Error().To(beRefusedAt("spec.config.systemd.units[0].dropins[1].name", "spec.kubelet.wrapper"))
		})

		It("are refused with other files that Poolboot manages", func() {
			config := renderedConfig()
			config.Spec.Config = raw(`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/kubernetes/kubelet.conf.d/98-poolboot-pool.conf","contents":{"source":"data:,providerID:%20a"}},{"path":"/etc/hostname"}]}}`)
			Expect(webhook.ValidateCreate(ctx(), config)).Error().To(And(
				beRefusedAt("spec.config.storage.files[0].contents", "providerID"), beRefusedAt("spec.config.storage.files[1].path", "/etc/hostname")))
		})

		DescribeTable("are refused if their name does not match their content",
			func(change func(*poolv1.MachineConfig)) {
				config := renderedConfig()
				change(config)
				_, err := webhook.ValidateCreate(ctx(), config)
				Expect(err).To(beRefusedAt("metadata.name", "named by their content", "use another name"))
			},
			Entry("other content", func(c *poolv1.MachineConfig) { c.Spec.KernelArguments = []string{"quiet"} }),
			Entry("another pool", func(c *poolv1.MachineConfig) { c.Labels[poolv1.RenderedForLabel] = "worker" }),
			Entry("no pool", func(c *poolv1.MachineConfig) { c.Labels = nil }),
			Entry("a name that a user chose", func(c *poolv1.MachineConfig) { c.Name = "rendered-mine" }),
		)

		It("never change", func() {
			before, after := renderedConfig(), renderedConfig()
			after.Spec.OSImageURL = "quay.io/other"
			_, err := webhook.ValidateUpdate(ctx(), before, after)
			Expect(err).To(beRefusedAt("metadata.name", "never change"))
		})
	})

	Describe("of a pool for the control plane", func() {
		controlPlane := newPool("masters", poolv1.RoleControlPlane)
		withPools := &MachineConfig{Reader: newWebhook(newPool("infra", "infra"), controlPlane).Reader}
		of := func(role string) *poolv1.MachineConfig {
			config := machineConfig("50-a", `{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/a"},{"path":"/etc/kubernetes/pki/a.crt"}]}}`, "")
			config.Namespace, config.Labels = controlPlane.Namespace, map[string]string{"role": role}
			return config
		}
		beRefused := beRefusedAt("spec.config.storage.files[1].path", "/etc/kubernetes/pki/a.crt is reserved for the control plane", "leave it out, and use kubeadmConfigSpec of the KubeadmControlPlane")

		It("are refused if they touch what kubeadm and etcd have, also when the pool selects them later", func() {
			Expect(withPools.ValidateCreate(ctx(), of(poolv1.RoleControlPlane))).Error().To(beRefused)
			Expect(withPools.ValidateUpdate(ctx(), of("infra"), of(poolv1.RoleControlPlane))).Error().To(beRefused)
			Expect(withPools.ValidateCreate(ctx(), of("infra"))).Error().NotTo(HaveOccurred())
			Expect(withPools.ValidateUpdate(ctx(), of(poolv1.RoleControlPlane), of("infra"))).Error().NotTo(HaveOccurred())
		})

		It("are refused as rendered configs, too", func() {
			config := of("")
			config.Labels = map[string]string{poolv1.RenderedForLabel: controlPlane.Name}
			var err error
			config.Name, err = pool.NameFor(controlPlane.Name, config.Spec)
			Expect(err).NotTo(HaveOccurred())
			Expect(withPools.ValidateCreate(ctx(), config)).Error().To(beRefused)
		})
	})

	It("allows labels on, and the deletion of, an object that only older rules accepted", func() {
		before := machineConfig("50-infra", `{"ignition":{"version":"9.9.0"}}`, "")
		after := before.DeepCopy()
		after.Labels = map[string]string{"a": "b"}
		Expect(webhook.ValidateUpdate(ctx(), before, after)).Error().NotTo(HaveOccurred())
		Expect(webhook.ValidateDelete(ctx(), after)).Error().NotTo(HaveOccurred())
	})

	It("validates an update with the same rules", func() {
		before, after := machineConfig("50-infra", "", ""), machineConfig("50-infra", `{"ignition":{"version":"9.9.0"}}`, "")
		_, err := webhook.ValidateUpdate(ctx(), before, after)
		Expect(err).To(beRefusedAt("spec.config.ignition.version"))
	})
})
