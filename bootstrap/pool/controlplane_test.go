package pool_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

var _ = Describe("A pool for the control plane", func() {
	pools := []poolv1.MachineConfigPool{newPool("worker"), newPool("infra"), newPool(poolv1.RoleControlPlane)}

	DescribeTable("renders nothing that touches certificates, manifests and data of kubeadm and etcd", func(message string, documents ...string) {
		var configs []poolv1.MachineConfig
		for i, document := range documents {
			configs = append(configs, withIgnition([]string{"50-a", "60-b"}[i], poolv1.RoleControlPlane, `{"ignition":{"version":"3.5.0"},`+document+`}`))
		}
		Expect(pool.Render(poolv1.RoleControlPlane, pools, configs)).Error().To(MatchError(ContainSubstring(message)))
		for i := range configs {
			configs[i].Labels[roleLabel] = "infra"
		}
		_, err := pool.Render("infra", pools, configs)
		Expect(err).NotTo(HaveOccurred(), "other hosts can have this")
	},
		Entry("a file", `MachineConfig "50-a": spec.config: storage.files[0].path: /etc/kubernetes/manifests/a.yaml is reserved for the control plane: kubeadm and etcd have it, and no update may touch it: `+
			`leave it out, and use kubeadmConfigSpec of the KubeadmControlPlane`, `"storage":{"files":[{"path":"/etc/kubernetes/manifests/a.yaml"}]}`),
		Entry("a mount", `MachineConfig "50-a": spec.config: systemd.units[0].name: a mount at /var/lib/etcd would hide`, `"systemd":{"units":[{"name":"var-lib-etcd.mount","contents":"[Mount]"}]}`),
		Entry("SSH keys, with the home of the user in another MachineConfig", `MachineConfig "60-b": spec.config.passwd.users[0].sshAuthorizedKeys: together with spec.config.passwd.users[0] of MachineConfig "50-a"`,
			`"passwd":{"users":[{"name":"etcd","homeDir":"/var/lib/etcd"}]}`, `"passwd":{"users":[{"name":"etcd","sshAuthorizedKeys":["a"]}]}`),
	)

	It("renders everything else, also settings of the kubelet", func() {
		p := newPool(poolv1.RoleControlPlane)
		p.Spec.Kubelet.AutoSizingReserved = new(true)
		p = withKubelet(p, `{"maxPods":50}`)
		_, err := pool.Render(poolv1.RoleControlPlane, []poolv1.MachineConfigPool{newPool("worker"), p},
			[]poolv1.MachineConfig{newConfig("50-a", poolv1.RoleControlPlane, "/etc/kubernetes/audit.yaml", "a")})
		Expect(err).NotTo(HaveOccurred())
	})

	It("does not disable static Pods, in which it runs", func() {
		disabled := withKubelet(newPool(poolv1.RoleControlPlane), `{"staticPodPath":""}`)
		Expect(pool.CheckKubelet(&disabled, nil)).To(MatchError(ContainSubstring(
			`MachineConfigPool "control-plane": spec.kubelet.configuration.staticPodPath: Forbidden: the control plane runs in static Pods: remove it`)))
		others := withKubelet(newPool("infra"), `{"staticPodPath":""}`)
		Expect(pool.CheckKubelet(&others, nil)).To(Succeed())
	})

	It("decides what its MachineConfigs and rendered configs can have, and no other ones", func() {
		of := func(name, role string) ignition.Scope {
			config := newConfig(name, role, "/etc/a", "a")
			return pool.ScopeOf(&config, pools)
		}
		Expect(of("50-a", poolv1.RoleControlPlane)).To(Equal(ignition.Scope{ControlPlane: true}))
		Expect(of("50-a", "worker")).To(Equal(ignition.Scope{}))
		name, err := pool.NameFor(poolv1.RoleControlPlane, poolv1.MachineConfigSpec{})
		Expect(err).NotTo(HaveOccurred())
		Expect(of(name, "")).To(Equal(ignition.Scope{Rendered: true, ControlPlane: true}))
		name, err = pool.NameFor("infra", poolv1.MachineConfigSpec{})
		Expect(err).NotTo(HaveOccurred())
		Expect(of(name, "")).To(Equal(ignition.Scope{Rendered: true}))
	})
})
