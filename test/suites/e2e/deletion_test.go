package e2e

import (
	"context"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hostaccess"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var _ = Describe("A Machine that goes", func() {
	It("after its Node joined leaves its host free and nothing of Poolboot", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		deployment := t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		joined(ctx, t, config)
		t.Scale(ctx, deployment, 0)
		Eventually(ctx, traces(ctx, t, config)).Should(BeEmpty())
		Eventually(ctx, free(ctx, t)).Should(HaveExactElements(t.HostName(0)))
	})

	// Each entry brings a Machine to a step and holds it there by programs that are not running; those it returns.
	DescribeTable("leaves its host free, and nothing of what was made for it,",
		func(ctx SpecContext, hosts int, reach func(context.Context, *tenant.Tenant, *bootstrapv1.PoolbootConfig) []*site.Program) {
			t := tenant.New(ctx, lab, 0)
			deployment := t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
			config := t.Config(ctx, "infra")
			Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
			machine := t.Machine(ctx, config)
			DeferCleanup(revive)
			stopped := reach(ctx, t, config)
			t.Scale(ctx, deployment, 0)
			start(ctx, stopped...)
			letStand(ctx, config, false)
			Eventually(ctx, traces(ctx, t, config)).Should(BeEmpty())
			Eventually(ctx, free(ctx, t)).Should(HaveLen(hosts))
			Consistently(ctx, traces(ctx, t, config)).Should(BeEmpty())
			Expect(lab.WorkloadClient.Get(ctx, client.ObjectKey{Name: machine.Name}, &corev1.Node{})).To(Satisfy(apierrors.IsNotFound))
			Eventually(ctx, func() error { return lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(machine), machine) }).
				Should(Satisfy(apierrors.IsNotFound))
		},
		Entry("before it has a host", 0, func(context.Context, *tenant.Tenant, *bootstrapv1.PoolbootConfig) []*site.Program { return nil }),
		Entry("when its host asks and nobody answers", 1, func(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig) []*site.Program {
			kill(lab.ConfigServer)
			t.AddHosts(ctx, 1)
			Eventually(ctx, func() *host.Host { return lab.Hardware.Host(t.HostName(0)) }).ShouldNot(BeNil())
			return []*site.Program{lab.ConfigServer}
		}),
		Entry("when its host asked and nobody prepares", 1, func(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig) []*site.Program {
			kill(lab.Manager)
			t.AddHosts(ctx, 1)
			booting(ctx, config, func(boot bootstrapv1.BootStatus) bool { return boot.RequestedTime != nil })
			return []*site.Program{lab.Manager}
		}),
		Entry("when all is made and the host does not get it", 1, func(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig) []*site.Program {
			prepared(ctx, t, config)
			return []*site.Program{lab.ConfigServer}
		}),
		Entry("when its host has its configuration and no certificate", 1, func(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig) []*site.Program {
			prepared(ctx, t, config)
			kill(lab.Manager)
			start(ctx, lab.ConfigServer)
			booting(ctx, config, func(boot bootstrapv1.BootStatus) bool { return boot.ServedTime != nil })
			return []*site.Program{lab.Manager}
		}),
		Entry("when its Node is Ready and nobody has ended the boot", 1, func(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig) []*site.Program {
			t.AddHosts(ctx, 1)
			booting(ctx, config, func(boot bootstrapv1.BootStatus) bool { return boot.CredentialID != "" })
			letStand(ctx, config, true)
			Eventually(ctx, func() *bootstrapv1.PoolbootConfig {
				return approved(ctx, map[string]*bootstrapv1.PoolbootConfig{"infra": config})
			}).WithPolling(promptly).ShouldNot(BeNil())
			kill(lab.Manager)
			Eventually(ctx, func() bool { return site.Ready(t.Node(ctx, config)) }).Should(BeTrue())
			Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)).To(Succeed())
			Expect(hostaccess.HasJoined(config)).To(BeFalse())
			return []*site.Program{lab.Manager}
		}),
	)

	It("before Cluster API knows its Node leaves no Node either", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		deployment := t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
		end := switchedOff(ctx, t, config)
		Eventually(ctx, answer).WithArguments(t.Pointer(ctx, config)).Should(Equal(200), "somebody asks in the host's place")
		Expect(nodes(ctx, config)).To(HaveLen(1))
		Expect(t.Machine(ctx, config).Status.NodeRef.IsDefined()).To(BeFalse())
		t.Scale(ctx, deployment, 0)
		Eventually(ctx, func() (*bmov1alpha1.Image, error) {
			host := &bmov1alpha1.BareMetalHost{}
			err := lab.ManagementClient.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: t.HostName(0)}, host)
			return host.Spec.Image, err
		}).Should(BeNil(), "the host is to be wiped")
		end()
		Eventually(ctx, traces(ctx, t, config)).Should(BeEmpty())
	})
})

// prepared brings a Machine to where its host has asked, everything is made for it, and it does not get it: there is no
// config server.
func prepared(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig) {
	GinkgoHelper()
	kill(lab.Manager)
	t.AddHosts(ctx, 1)
	booting(ctx, config, func(boot bootstrapv1.BootStatus) bool { return boot.RequestedTime != nil })
	kill(lab.ConfigServer)
	start(ctx, lab.Manager)
	Eventually(ctx, t.Condition(config, bootstrapv1.BootPreparedCondition)).Should(HavePrefix("True"))
	Expect(overlays(ctx, config)).To(HaveLen(1))
	Expect(joinTokens(ctx, config)).To(HaveLen(1))
	Expect(nodes(ctx, config)).To(HaveLen(1))
}

// booting waits until a boot is where is says, and reads the config.
func booting(ctx context.Context, config *bootstrapv1.PoolbootConfig, is func(bootstrapv1.BootStatus) bool) {
	GinkgoHelper()
	Eventually(ctx, func() (bool, error) {
		err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)
		return is(config.Status.Boot), err
	}).WithPolling(promptly).Should(BeTrue())
}

// free are the names of a tenant's hosts that another Machine may have.
func free(ctx context.Context, t *tenant.Tenant) func() []string {
	return func() []string {
		var hosts bmov1alpha1.BareMetalHostList
		ExpectWithOffset(1, lab.ManagementClient.List(ctx, &hosts, client.InNamespace(t.Namespace))).To(Succeed())
		var names []string
		for _, host := range hosts.Items {
			if host.Spec.ConsumerRef == nil && host.Status.Provisioning.State == bmov1alpha1.StateAvailable {
				names = append(names, host.Name)
			}
		}
		return names
	}
}
