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
		p.Spec.KubeletWrapper = command
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
