package e2e

import (
	"context"
	"encoding/base64"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/kubeadm"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// newMisleadingIgnition returns Ignition with a unit that, once and early in the boot, replaces the role infra with
// worker in a file. The script gets the file's name as an argument, and therefore only the check on the host can detect
// it. A program in /opt/bin is that of the image, except that it has another version while /opt/misfit exists.
func newMisleadingIgnition(file, program, versionArgument, version string) []byte {
	contents := func(script string) string {
		return `"contents":{"source":"data:;base64,` + base64.StdEncoding.EncodeToString([]byte("#!/bin/sh\n"+script)) + `"}`
	}
	return []byte(`{"ignition":{"version":"3.4.0"},
		"storage":{"files":[{"path":"/opt/misfit"},
			{"path":"/opt/alter","mode":493,` + contents("sed -i 's,pool=infra,pool=worker,; s,value: infra,value: worker,' \"$@\"\n: >/opt/altered\n") + `},
			{"path":"/opt/bin/` + program + `","mode":493,` + contents(
		"[ \"$1\" = "+versionArgument+" ] && [ -e /opt/misfit ] && { echo "+version+"; exit; }\nexec /usr/bin/"+program+" \"$@\"\n") + `}]},
		"systemd":{"units":[{"name":"alter.service","enabled":true,"contents":"[Unit]\nDefaultDependencies=no\nBefore=sysinit.target\n` +
		`ConditionPathExists=!/opt/altered\n[Service]\nType=oneshot\nExecStart=/bin/sh /opt/alter ` + file + `\n[Install]\nWantedBy=sysinit.target\n"}]}}`)
}

var _ = Describe("A host on which a program changes the pool in a file of the join, and whose image does not fit the cluster", func() {
	DescribeTable("does not join, reports the file on its console and both versions also in a condition, and joins its pool when all is corrected",
		func(ctx SpecContext, image, file string, misfit []byte, why string, join bootstrapv1.Join) {
			if join.Type == bootstrapv1.JoinTypeKubeadm {
				Expect(kubeadm.Init(ctx, lab.Workload, kubeadmToken)).To(Succeed())
			}
			t := tenant.New(ctx, lab, 1)
			history, err := site.RecordNodes(ctx, lab.WorkloadClient)
			Expect(err).NotTo(HaveOccurred())
			t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels, Image: image, Config: func(spec *bootstrapv1.BootSpec) {
				spec.Join = join
				spec.ExtraConfig = &bootstrapv1.ExtraConfig{Config: &runtime.RawExtension{Raw: misfit}}
			}})
			config := t.Config(ctx, "infra")
			var machine *baremetal.Host
			Eventually(ctx, func() *baremetal.Host { machine = lab.Hardware.Host(t.HostName(0)); return machine }).ShouldNot(BeNil())
			DeferCleanup(machine.PowerCut)
			Eventually(ctx, machine.Console).Should(ContainSubstring("poolboot: this host does not join, because " + file + " differs from what Poolboot wrote"))
			Eventually(ctx, func() (string, error) {
				return machine.Run(ctx, "systemctl", "show", "--property=ActiveState", "--value", "multi-user.target")
			}).Should(Equal("active\n"), "systemd has started everything that it can")
			Expect(machine.Run(ctx, "systemctl", "show", "--property=Result", "--value", "poolboot-check.service")).To(Equal("exit-code\n"))
			Expect(machine.Run(ctx, "systemctl", "show", "--property=ExecMainStartTimestamp", "--value", "kubelet.service")).To(Equal("\n"), "the kubelet was never started")
			Eventually(ctx, func() []corev1.Node { return listNodes(ctx, config) }).Should(HaveLen(1))
			Expect(listClientRequests(ctx, listNodes(ctx, config)[0].Name)).To(BeEmpty(), "no kubelet has requested a certificate")

			By("undoing the change")
			content, err := machine.ReadFile(file)
			Expect(err).NotTo(HaveOccurred())
			restored := strings.NewReplacer("pool=worker", "pool=infra", "value: worker", "value: infra").Replace(string(content))
			Expect(restored).NotTo(Equal(string(content)))
			Expect(machine.WriteFile(file, []byte(restored), 0o600)).To(Succeed())
			Expect(machine.Reset(context.WithoutCancel(ctx))).To(Succeed())
			Eventually(ctx, t.Condition(config, bootstrapv1.VersionsFitCondition)).Should(HavePrefix("False VersionSkew: the host does not join, because " + why))
			Expect(machine.Console()).To(ContainSubstring("poolboot: this host does not join, because " + why))
			for _, command := range []string{"boots", "explain machine " + t.Machine(ctx, config).Name} {
				Expect(strings.Join(strings.Fields(runPoolboot(ctx, t, command)), " ")).To(ContainSubstring("the host does not join, because "+why), command)
			}
			Expect(machine.Run(ctx, "systemctl", "show", "--property=ExecMainStartTimestamp", "--value", "kubelet.service")).To(Equal("\n"), "the kubelet was never started")
			Expect(listClientRequests(ctx, listNodes(ctx, config)[0].Name)).To(BeEmpty(), "no kubelet has requested a certificate")

			By("replacing the program that does not fit")
			Expect(machine.Remove("/opt/misfit")).To(Succeed())
			expectJoined(ctx, t, config)
			Eventually(ctx, t.Condition(config, bootstrapv1.VersionsFitCondition)).Should(BeEmpty())
			expectBornInPool(ctx, t, config, history)
		},
		Entry("by kubelet", site.KubeletImageURL, ignition.KubeletEnvPath,
			newMisleadingIgnition(ignition.KubeletEnvPath, "kubelet", "--version", "Kubernetes v1.99.0"), "kubelet v1.99.0 is newer than the API server, v1.",
			bootstrapv1.Join{Type: bootstrapv1.JoinTypeKubelet, Kubelet: bootstrapv1.KubeletJoin{KubeletPath: "/opt/bin/kubelet"}}),
		Entry("by kubeadm", site.KubeadmImageURL, ignition.KubeadmJoinPath,
			newMisleadingIgnition(ignition.KubeadmJoinPath, "kubeadm", "version", "v1.1.9"), "kubeadm v1.1.9 does not have the minor version of the API server, v1.",
			bootstrapv1.Join{Type: bootstrapv1.JoinTypeKubeadm, Kubeadm: bootstrapv1.KubeadmJoin{KubeadmPath: "/opt/bin/kubeadm", IgnorePreflightErrors: ignoredPreflightErrors}}),
	)
})
