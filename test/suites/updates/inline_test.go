package updates

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var _ = Describe("A host with an inline data Secret", func() {
	It("joins without the config server, gets its agent when it reaches it, and follows its pool then", func(ctx SpecContext) {
		Expect(lab.ConfigServer.Kill()).To(Succeed())
		restart := sync.OnceFunc(func() { Expect(lab.ConfigServer.Start(context.WithoutCancel(ctx))).To(Succeed()) })
		DeferCleanup(restart)
		t := tenant.New(ctx, lab, 1)
		pool := t.Pool("far")
		pool.Spec.Updates.MinReadySeconds, pool.Spec.Updates.ReadyDeadlineSeconds = ptr.To[int32](2), 60
		change := t.MachineConfig("51-far", "far", "/etc/far", "1")
		t.Create(ctx, pool, change)
		t.Deploy(ctx, tenant.Deployment{Name: "far", Replicas: 1, Config: func(spec *bootstrapv1.BootSpec) {
			spec.PoolRole, spec.ConfigSource.Type = "far", bootstrapv1.ConfigSourceTypeInline
		}})
		config := t.Config(ctx, "far")
		updated := t.Condition(config, bootstrapv1.UpdatedCondition)
		Eventually(ctx, t.Condition(config, bootstrapv1.NodeInPoolCondition)).Should(HavePrefix("True"))
		Eventually(ctx, updated).Should(And(HavePrefix("Unknown "+bootstrapv1.NoAgentReason), ContainSubstring("config server"), ContainSubstring(ignition.InstallAgentUnit)))
		host := lab.Hardware.Host(config.Status.HostRef.Name)
		Expect(host.Run(ctx, "systemctl", "show", "--property=ActiveState", "--value", ignition.KubeletUnit)).To(Equal("active\n"))
		Eventually(ctx, host.Journal).WithArguments("--unit=" + ignition.InstallAgentUnit).Should(ContainSubstring("keeps its configuration: curl: (7)"))
		Expect(host.ReadFile(assignment.ProgramPath)).Error().To(HaveOccurred())

		By("giving hosts another CA too, as in the middle of its replacement")
		caFile := filepath.Join(lab.Dir(), "config-server-ca.crt")
		ca, err := os.ReadFile(caFile)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(caFile, append(ca, lab.Workload.Config.CAData...), 0o600)).To(Succeed())
		DeferCleanup(os.WriteFile, caFile, ca, os.FileMode(0o600))

		By("starting the config server")
		restart()
		Eventually(ctx, updated).Should(HavePrefix("True"))
		Expect(config.Status.Update.AgentVersion).NotTo(BeEmpty())
		Expect(t.Node(ctx, config).Annotations).NotTo(HaveKey(ContainSubstring("drift")), "the agent finds what Ignition wrote")
		Eventually(ctx, host.ReadFile).WithArguments(assignment.SettingsPath).Should(ContainSubstring(strings.Split(string(lab.Workload.Config.CAData), "\n")[1]))

		By("changing the pool")
		before := change.DeepCopy()
		change.Spec.Config = &runtime.RawExtension{Raw: t.MachineConfig("", "", "/etc/far", "2").Spec.Config.Raw}
		Expect(lab.ManagementClient.Patch(ctx, change, client.MergeFrom(before))).To(Succeed())
		Eventually(ctx, host.ReadFile).WithArguments("/etc/far").WithTimeout(4 * time.Minute).Should(BeEquivalentTo("2"))
		Eventually(ctx, updated).Should(And(HavePrefix("True"), Satisfy(func(string) bool {
			Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(pool), pool)).To(Succeed())
			return config.Status.Boot.ServedConfiguration.Name == pool.Status.Configuration.Name
		})))
	}, SpecTimeout(10*time.Minute))
})
