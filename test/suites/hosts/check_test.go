package hosts_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
)

// detour is a way by which a MachineConfig changes what Poolboot wrote, which only the host shows.
type detour struct {
	way    string
	config map[string]any
	// found is what the host says.
	found string
}

func links(path, target string) map[string]any {
	return map[string]any{"links": []map[string]any{{"path": path, "target": target, "overwrite": true}}}
}

// bindMount returns a unit that mounts a file over another one.
func bindMount(name, over string) map[string]any {
	return units(unit(name, "[Mount]", "What=/etc/hosts", "Where="+over, "Type=none", "Options=bind", "[Install]", "WantedBy=local-fs.target"))
}

func kubeletDropin(lines string) map[string]any {
	return units(map[string]any{"name": ignition.KubeletUnit, "dropins": []any{map[string]any{"name": "50-mine.conf", "contents": lines}}})
}

// detours are those of one host: each has a file, a setting or a unit of its own.
func detours() []detour {
	const differs = " differs from what Poolboot wrote"
	return []detour{
		{"a pattern in tmpfiles.d", map[string]any{"storage": files(file("/etc/tmpfiles.d/pattern.conf", 0o644, "w /etc/poolboo?/kubelet.env - - - - A=b\n"))},
			ignition.KubeletEnvPath + differs},
		{"modifiers in tmpfiles.d", map[string]any{"storage": files(file("/etc/tmpfiles.d/modifier.conf", 0o644, "f+~! /etc/systemd/system/poolboot-checkpoints.service 0644 - - - eA==\n"))},
			"/etc/systemd/system/poolboot-checkpoints.service" + differs},
		{"a link that leads to Poolboot's files", map[string]any{"storage": links("/opt/linked", "/etc/kubernetes")}, ""},
		{"and tmpfiles.d through it", map[string]any{"storage": files(file("/etc/tmpfiles.d/link.conf", 0o644, "r /opt/linked/kubelet.yaml\n"))},
			ignition.KubeletConfigPath + differs},
		{"a mount unit", map[string]any{"systemd": bindMount(`etc-systemd-system-poolboot\x2djoined.path.mount`, "/etc/systemd/system/poolboot-joined.path")},
			"/etc/systemd/system/poolboot-joined.path" + differs},
		{"a mount in fstab that the boot does not wait for", map[string]any{"storage": files(file("/etc/fstab", 0o644, "tmpfs /etc/kubernetes/pki tmpfs nofail 0 0\n"))},
			ignition.ClusterCAPath + differs},
		// In namespaces, systemd can't mount the directory of credentials. So a variable names it.
		{"a credential of systemd", map[string]any{
			"storage": files(file("/etc/credstore/tmpfiles.extra", 0o600, "w /etc/systemd/system/poolboot-joined.service - - - - x\n")),
			"systemd": units(map[string]any{"name": "systemd-tmpfiles-setup.service", "dropins": []any{map[string]any{"name": "mine.conf",
				"contents": "[Service]\nEnvironment=CREDENTIALS_DIRECTORY=/etc/credstore\n"}}})},
			"/etc/systemd/system/poolboot-joined.service" + differs},
		{"UnsetEnvironment=", map[string]any{"systemd": kubeletDropin("[Service]\nUnsetEnvironment=" + ignition.KubeletArgsVariable + "\n")},
			"UnsetEnvironment= of kubelet.service" + differs},
		{"InaccessiblePaths=", map[string]any{"storage": files(file("/etc/systemd/system/kubelet.service.d/60-mine.conf", 0o644, "[Service]\nInaccessiblePaths=-/opt/none\n"))},
			"InaccessiblePaths= of kubelet.service" + differs},
		{"an environment file of tmpfiles.d", map[string]any{"storage": files(
			file("/etc/systemd/system/kubelet.service.d/70-mine.conf", 0o644, "[Service]\nEnvironmentFile=-/opt/other.env\n"),
			file("/etc/tmpfiles.d/environment.conf", 0o644, "f+~ /opt/other.env 0644 - - - "+base64.StdEncoding.EncodeToString([]byte("KUBELET_EXTRA_ARGS=--node-labels=a=b\n"))+"\n"))},
			"/opt/other.env has a kubelet flag that identifies the Node"},
		{"a link to /dev/null where the kubelet is enabled", map[string]any{"storage": links("/etc/systemd/system.control/multi-user.target.wants/kubelet.service", "/dev/null")},
			"no unit wants kubelet.service"},
		{"Conflicts=", map[string]any{"systemd": units(unit("rival.service", "[Unit]", "Conflicts=kubelet.service", "[Service]", "Type=oneshot", "RemainAfterExit=yes", "ExecStart=/bin/true",
			"[Install]", "WantedBy=multi-user.target"))},
			"rival.service conflicts with kubelet.service"},
	}
}

// joining returns the user data of a host that would join a cluster, with configurations of MachineConfigs.
func joining(configs ...map[string]any) []byte {
	GinkgoHelper()
	overlay, err := join.Machine{
		Config: &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Spec: bootstrapv1.PoolbootConfigSpec{BootSpec: bootstrapv1.BootSpec{Join: bootstrapv1.Join{Type: bootstrapv1.JoinTypeKubelet}}}},
		Registration: registration.Registration{Name: "host", Labels: map[string]string{"poolboot.io/pool": "infra"}},
		Cluster:      join.Cluster{Name: "edge", Server: "https://192.0.2.1:6443", CA: []byte("CA\n")},
	}.Overlay(join.Credential{ID: "abc123", Secret: "0123456789abcdef"})
	Expect(err).NotTo(HaveOccurred())
	var parts []ignition.Config
	for _, config := range configs {
		part, err := ignition.Parse(document(config))
		Expect(err).NotTo(HaveOccurred())
		Expect(ignition.Guard(part)).To(Succeed(), "only the host finds it")
		parts = append(parts, part)
	}
	userData, err := ignition.WriteAs(ignition.Merge(append(parts, overlay)...), "3.4.0")
	Expect(err).NotTo(HaveOccurred())
	return userData
}

// property returns a property of a unit.
func property(ctx context.Context, h *baremetal.Host, unit, name string) string {
	GinkgoHelper()
	value, err := h.Run(ctx, "systemctl", "show", "--property="+name, "--value", unit)
	Expect(err).NotTo(HaveOccurred())
	return value
}

var _ = Describe("The check of a host that boots for the first time", func() {
	It("stops the join before the kubelet starts, and names every change of what Poolboot wrote", func(ctx SpecContext) {
		rack := newRack(ctx)
		var configs []map[string]any
		for _, d := range detours() {
			configs = append(configs, d.config)
		}
		changed := newHostWithUserData(rack, "host-0", baremetal.KubeletImage, joining(configs...))
		hidden := newHostWithUserData(rack, "host-1", baremetal.KubeletImage, joining(map[string]any{
			"storage": files(file("/etc/fstab", 0o644, "tmpfs /etc/poolboot tmpfs defaults 0 0\n"))}))
		for _, h := range []*baremetal.Host{changed, hidden} {
			Expect(h.PowerOn(ctx)).To(Succeed())
		}
		for _, h := range []*baremetal.Host{changed, hidden} {
			waitForBoot(ctx, h)
			Eventually(ctx, func() string { return property(ctx, h, "poolboot-check.service", "Result") }).Should(Equal("exit-code\n"))
			Expect(property(ctx, h, ignition.KubeletUnit, "ExecMainStartTimestamp")).To(Equal("\n"), "the kubelet was never started")
		}
		console, err := changed.Console()
		Expect(err).NotTo(HaveOccurred())
		var missed []string
		for _, d := range detours() {
			if matches, _ := ContainSubstring("poolboot: this host does not join, because " + d.found).Match(console); !matches && d.found != "" {
				missed = append(missed, d.way)
			}
		}
		Expect(missed).To(BeEmpty(), console)
		Expect(hidden.Console()).To(ContainSubstring(ignition.CheckScriptPath))
	}, SpecTimeout(3*time.Minute))
})

// describeCheck has the specs about updates that change what Poolboot wrote.
func describeCheck(host func() *wrappedHost, wrapper ...string) {
	It("undoes an update that changes what Poolboot wrote, and names every change", func(ctx SpecContext) {
		h := host()
		before := h.pool.assign(ctx, h.render(wrapper...))
		Eventually(ctx, h.pool.state(ctx)).Should(Equal("Done " + before))
		labels := h.ready(ctx)(Default).Labels
		for i, d := range detours() {
			h.others = append(h.others, h.ofPool(fmt.Sprintf("60-%02d", i), d.config))
		}
		DeferCleanup(func() { h.others = nil })
		revision := h.pool.assign(ctx, h.render(wrapper...))
		Eventually(ctx, h.pool.state(ctx)).WithTimeout(2 * time.Minute).Should(Equal("Degraded " + revision))
		reason := h.reason(ctx)()
		for _, d := range detours() {
			Expect(reason).To(ContainSubstring(d.found), d.way)
		}
		Expect(h.annotation(ctx, agentv1.CurrentAnnotation)).To(Equal(before))
		Expect(h.annotation(ctx, agentv1.DriftAnnotation)).To(BeEmpty(), "also Poolboot's files are as before")
		Eventually(ctx, func(g Gomega) { g.Expect(h.ready(ctx)(g).Labels).To(Equal(labels)) }).Should(Succeed())
	}, SpecTimeout(3*time.Minute))

	It("undoes an update with a kubelet that works, and is newer than the API server, and names both versions", func(ctx SpecContext) {
		h := host()
		before := h.pool.assign(ctx, h.render(wrapper...))
		Eventually(ctx, h.pool.state(ctx)).Should(Equal("Done " + before))
		h.others = append(h.others, h.ofPool("60-kubelet", map[string]any{
			"storage": files(file("/opt/newer", 0o755, "#!/bin/sh\n[ \"$1\" = --version ] && { echo Kubernetes v1.99.0; exit; }\nexec /opt/image \"$@\"\n")),
			"systemd": units(unit("newer.service", "[Unit]", "Before=kubelet.service", "[Service]", "Type=oneshot", "RemainAfterExit=yes",
				"ExecStart=touch /opt/image", "ExecStart=mount --bind /usr/bin/kubelet /opt/image", "ExecStart=mount --bind /opt/newer /usr/bin/kubelet", "[Install]", "WantedBy=multi-user.target")),
		}))
		DeferCleanup(func() { h.others = nil })
		revision := h.pool.assign(ctx, h.render(wrapper...))
		Eventually(ctx, h.pool.state(ctx)).WithTimeout(2 * time.Minute).Should(Equal("Degraded " + revision))
		Expect(h.reason(ctx)()).To(ContainSubstring("kubelet v1.99.0 is newer than the API server, v1."))
		Expect(h.annotation(ctx, agentv1.CurrentAnnotation)).To(Equal(before))
		Eventually(ctx, func(g Gomega) { h.ready(ctx)(g) }).Should(Succeed())
		Expect(h.Run(ctx, "/usr/bin/kubelet", "--version")).NotTo(ContainSubstring("v1.99.0"))
	}, SpecTimeout(3*time.Minute))
}
