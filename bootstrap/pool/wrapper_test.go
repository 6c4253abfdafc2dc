package pool_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

var _ = Describe("The wrapper of a pool's kubelets", func() {
	withWrapper := func(p poolv1.MachineConfigPool, command ...string) poolv1.MachineConfigPool {
		p.Spec.Kubelet.Wrapper = command
		return p
	}
	unit := newConfig("00-worker", "worker", "/etc/motd", "worker")
	unit.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.2.0"},"systemd":{"units":[{"name":"kubelet.service","dropins":[
		{"name":"10-mine.conf","contents":"[Unit]\nAfter=kubens.service\n"}]}]}}`)

	render := func(worker, infra poolv1.MachineConfigPool) (*pool.Rendered, map[string]string) {
		GinkgoHelper()
		rendered, err := pool.Render("infra", []poolv1.MachineConfigPool{worker, infra}, []poolv1.MachineConfig{unit})
		Expect(err).NotTo(HaveOccurred())
		config, err := ignition.Parse(rendered.Spec.Config.Raw)
		Expect(err).NotTo(HaveOccurred())
		Expect(config.Systemd.Units).To(HaveLen(1))
		dropins := map[string]string{}
		for _, dropin := range config.Systemd.Units[0].Dropins {
			dropins[dropin.Name] = *dropin.Contents
		}
		Expect(dropins).To(HaveKey("10-mine.conf"), "a MachineConfig's drop-in of the same unit is kept")
		delete(dropins, "10-mine.conf")
		return rendered, dropins
	}
	command := func(wrapper string) map[string]string {
		return map[string]string{"20-poolboot-wrapper.conf": strings.Join([]string{
			"[Service]", "Environment=POOLBOOT_KUBELET_COMMAND=/usr/bin/kubelet", "ExecStart=",
			"ExecStart=" + wrapper + " $POOLBOOT_KUBELET_COMMAND $POOLBOOT_KUBELET_ARGS " +
				"$KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS", ""}, "\n")}
	}

	It("is a drop-in of the kubelet's unit: that of the pool or, without one, that of worker", func() {
		worker, infra := newPool("worker"), newPool("infra")
		_, dropins := render(worker, infra)
		Expect(dropins).To(BeEmpty())
		of, dropins := render(withWrapper(worker, "/usr/bin/nsenter", "--mount=/run/kubens/mnt"), infra)
		Expect(dropins).To(Equal(command("/usr/bin/nsenter --mount=/run/kubens/mnt")))
		Expect(of.Origins).To(ContainElement(And(HaveField("Pool", "worker"), HaveField("Name", ContainSubstring("20-poolboot-wrapper.conf")))))
		Expect(of.Kubelets).To(BeEmpty())
		_, dropins = render(withWrapper(worker, "/usr/bin/nsenter"), withWrapper(infra, "/usr/bin/chrt", "5"))
		Expect(dropins).To(Equal(command("/usr/bin/chrt 5")))
	})
})

var _ = DescribeTable("A wrapper that Poolboot's guard refuses",
	func(path, why string, words ...string) {
		worker, infra := newPool("worker"), newPool("infra")
		infra.Spec.Kubelet.Wrapper = words
		_, err := pool.Render("infra", []poolv1.MachineConfigPool{worker, infra}, nil)
		Expect(err).To(MatchError(And(HavePrefix(`MachineConfigPool "infra": spec.kubelet.wrapper`+path+": Forbidden: "), ContainSubstring(why))))
		Expect(pool.CheckKubelet(&infra, &worker)).To(MatchError(err))
	},
	Entry("a flag that labels the Node", "[1]", "--node-labels is reserved", "/opt/wrap", "--node-labels=a=b"),
	Entry("a flag with underscores", "[1]", "--register_with_taints is reserved", "/opt/wrap", "--register_with_taints=a=b:NoSchedule"),
	Entry("a flag in a split string of env", "[1]", "--hostname-override is reserved", "/usr/bin/env", "-S--hostname-override=a"),
	Entry("another kubelet, which reads the added command as a value", "[0]", "the kubelet's own command is added", "/usr/bin/kubelet", "--v=2", "--root-dir"),
	Entry("another kubelet through env", "[2]", "the kubelet's own command is added", "/usr/bin/env", "A=b", "/opt/kubelet"),
	Entry("a variable with the flags of the kubelet", "[1]", "the variable POOLBOOT_KUBELET_ARGS is reserved", "/usr/bin/env", "POOLBOOT_KUBELET_ARGS="),
	Entry("a command that renames the host", "", "would change the host's name", "/usr/bin/hostnamectl", "set-hostname", "a"),
)

var _ = DescribeTable("A wrapper that Poolboot's guard accepts",
	func(words ...string) {
		Expect(ignition.GuardWrapper(words)).To(Succeed())
	},
	Entry(nil, "/usr/bin/nsenter", "--mount=/run/kubens/mnt"),
	Entry(nil, "/usr/bin/env", "GODEBUG=x509ignoreCN=0"),
	Entry(nil, "/usr/bin/env"),
	Entry(nil, "/usr/bin/numactl", "--membind=0", "--"),
)

var _ = DescribeTable("The drop-in of a wrapper in a rendered config is checked as one of a pool", func(wrapper string, matcher OmegaMatcher) {
	pools := []poolv1.MachineConfigPool{newPool("worker")}
	pools[0].Spec.Kubelet.Wrapper = []string{"/opt/wrap", "--a=b"}
	rendered, err := pool.Render("worker", pools, nil)
	Expect(err).NotTo(HaveOccurred())
	config, err := ignition.Parse([]byte(strings.Replace(string(rendered.Spec.Config.Raw), "/opt/wrap --a=b", wrapper, 1)))
	Expect(err).NotTo(HaveOccurred())
	Expect(ignition.Scope{Rendered: true}.Guard(config)).To(matcher)
},
	Entry(nil, "/opt/wrap --a=b", Succeed()),
	Entry(nil, "/opt/wrap --node-labels=a=b", MatchError(ContainSubstring("20-poolboot-wrapper.conf"))),
	Entry(nil, "/usr/bin/kubelet --root-dir", MatchError(ContainSubstring("20-poolboot-wrapper.conf"))),
	Entry(nil, "-/opt/wrap", MatchError(ContainSubstring("20-poolboot-wrapper.conf"))),
)
