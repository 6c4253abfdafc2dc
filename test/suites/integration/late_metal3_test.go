package integration

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterapi"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var _ = Describe("A management cluster without Metal3", func() {
	It("boots hosts with an enrollment token, and Metal3's hosts after its installation, without a restart", func(ctx SpecContext) {
		s := tenant.StartSite(ctx, site.Options{Hardware: stormHardware, Neighbor: lab, WithoutMetal3: true})
		t := tenant.NewEmpty(ctx, s)
		t.CreateCluster(ctx, clusterapi.ClusterOptions{WithoutMetal3: true})
		t.CreateHostTemplate(ctx, nil)
		infra := t.Pool("infra")
		tenant.TakeHosts(infra)
		infra.Spec.Node.LabelRules = []nodev1.NodeLabelRule{{Key: "example.com/vendor", ValueExpression: "host.hardware.vendor"}}
		t.Create(ctx, t.Pool("worker"), infra,
			t.MachineConfig("00-worker", "worker", "/etc/workertest", "worker"), t.MachineConfig("51-infra", "infra", "/etc/infratest", "infra"))

		b := createEnrollmentToken(ctx, t, s.ManagementClient, 1)
		Eventually(ctx, b.getReady).Should(HavePrefix("True"))
		config := b.newRecord(b.hostName(1))
		fetchConfiguration(ctx, b.pointer(config.Name))
		Expect(s.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)).To(Succeed())
		Expect(t.Node(ctx, config).Labels).To(HaveKeyWithValue(poolv1.NodePoolLabel, "infra"))
		Expect(s.Manager.Log()).To(ContainSubstring("The API server does not serve this kind yet: its objects are watched once its CustomResourceDefinition is installed"))

		By("installing Metal3, and booting a host of a Machine and a host with a pool annotation")
		Expect(s.StartMetal3(context.WithoutCancel(ctx))).To(Succeed())
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		t.AddHost(ctx, t.HostName(0))
		config = t.Config(ctx, "infra")
		Eventually(ctx, t.Condition(config, bootstrapv1.BootPreparedCondition)).Should(HavePrefix("True"))
		Expect(t.Node(ctx, config).Labels).To(And(HaveKeyWithValue(poolv1.NodePoolLabel, "infra"), HaveKey(poolv1.NodeMetal3UUIDLabel),
			HaveKeyWithValue("example.com/vendor", "Simulated")))
		t.BootAnnotatedHost(ctx, t.HostName(1), "infra")
		Eventually(ctx, t.Condition(b.newRecord(t.HostName(1)), bootstrapv1.BootPreparedCondition)).Should(HavePrefix("True"))
	}, SpecTimeout(6*time.Minute))
})
