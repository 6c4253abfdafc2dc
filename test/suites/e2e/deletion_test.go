package e2e

import (
	"context"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var _ = Describe("A deleted Machine", func() {
	It("whose Node has joined frees its host and leaves no objects of Poolboot", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		deployment := t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		expectJoined(ctx, t, config)
		t.Scale(ctx, deployment, 0)
		Eventually(ctx, findLeftovers(ctx, t, config)).Should(BeEmpty())
		Eventually(ctx, listFreeHosts(ctx, t)).Should(HaveExactElements(t.HostName(0)))
	})

	// Each entry brings a Machine to a step of its boot, holds it there by stopping programs, and returns these
	// programs.
	DescribeTable("frees its host and leaves no objects that were created for it,",
		func(ctx SpecContext, hosts int, reach func(context.Context, *tenant.Tenant, *bootstrapv1.PoolbootConfig) []*site.Program) {
			t := tenant.New(ctx, lab, 0)
			deployment := t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
			config := t.Config(ctx, "infra")
			Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
			machine := t.Machine(ctx, config)
			DeferCleanup(restartAfterFailure)
			stopped := reach(ctx, t, config)
			t.Scale(ctx, deployment, 0)
			start(ctx, stopped...)
			setPaused(ctx, config, false)
			Eventually(ctx, findLeftovers(ctx, t, config)).Should(BeEmpty())
			Eventually(ctx, listFreeHosts(ctx, t)).Should(HaveLen(hosts))
			Consistently(ctx, findLeftovers(ctx, t, config)).Should(BeEmpty())
			Expect(lab.WorkloadClient.Get(ctx, client.ObjectKey{Name: machine.Name}, &corev1.Node{})).To(Satisfy(apierrors.IsNotFound))
			Eventually(ctx, func() error { return lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(machine), machine) }).
				Should(Satisfy(apierrors.IsNotFound))
		},
		Entry("before it has a host", 0, func(context.Context, *tenant.Tenant, *bootstrapv1.PoolbootConfig) []*site.Program { return nil }),
		Entry("when its host asks while the config server is down", 1, func(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig) []*site.Program {
			kill(lab.ConfigServer)
			t.AddHosts(ctx, 1)
			Eventually(ctx, func() *baremetal.Host { return lab.Hardware.Host(t.HostName(0)) }).ShouldNot(BeNil())
			return []*site.Program{lab.ConfigServer}
		}),
		Entry("when its host has asked while the manager is down", 1, func(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig) []*site.Program {
			kill(lab.Manager)
			t.AddHosts(ctx, 1)
			waitForBoot(ctx, config, func(status bootstrapv1.PoolbootConfigStatus) bool { return status.Requests.RequestedTime != nil })
			return []*site.Program{lab.Manager}
		}),
		Entry("when its boot is prepared and the host does not get its configuration", 1, func(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig) []*site.Program {
			prepareWithoutServing(ctx, t, config)
			return []*site.Program{lab.ConfigServer}
		}),
		Entry("when its host has its configuration and no certificate", 1, func(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig) []*site.Program {
			prepareWithoutServing(ctx, t, config)
			kill(lab.Manager)
			start(ctx, lab.ConfigServer)
			waitForBoot(ctx, config, func(status bootstrapv1.PoolbootConfigStatus) bool { return status.Requests.ServedTime != nil })
			return []*site.Program{lab.Manager}
		}),
		Entry("when its Node is Ready and the boot is not completed", 1, func(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig) []*site.Program {
			t.AddHosts(ctx, 1)
			waitForBoot(ctx, config, func(status bootstrapv1.PoolbootConfigStatus) bool { return status.Boot.CredentialID != "" })
			setPaused(ctx, config, true)
			Eventually(ctx, func() *bootstrapv1.PoolbootConfig {
				return findApproved(ctx, map[string]*bootstrapv1.PoolbootConfig{"infra": config})
			}).WithPolling(crashPollingInterval).ShouldNot(BeNil())
			kill(lab.Manager)
			Eventually(ctx, func() bool { return util.IsNodeReady(t.Node(ctx, config)) }).Should(BeTrue())
			Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)).To(Succeed())
			Expect(record.HasJoined(config)).To(BeFalse())
			return []*site.Program{lab.Manager}
		}),
	)

	It("whose Node Cluster API does not know leaves no Node", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		deployment := t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
		resume := assignPausedHost(ctx, t, config)
		Eventually(ctx, fetchStatus).WithArguments(t.Pointer(ctx, config)).Should(Equal(200), "an attacker asks in place of the host")
		Expect(listNodes(ctx, config)).To(HaveLen(1))
		Expect(t.Machine(ctx, config).Status.NodeRef.IsDefined()).To(BeFalse())
		t.Scale(ctx, deployment, 0)
		Eventually(ctx, func() (*bmov1alpha1.Image, error) {
			host := &bmov1alpha1.BareMetalHost{}
			err := lab.ManagementClient.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: t.HostName(0)}, host)
			return host.Spec.Image, err
		}).Should(BeNil(), "the host is being deprovisioned")
		resume()
		Eventually(ctx, findLeftovers(ctx, t, config)).Should(BeEmpty())
	})
})

// prepareWithoutServing waits until a boot is prepared. The config server is killed before that: the host does not get
// its configuration.
func prepareWithoutServing(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig) {
	GinkgoHelper()
	kill(lab.Manager)
	t.AddHosts(ctx, 1)
	waitForBoot(ctx, config, func(status bootstrapv1.PoolbootConfigStatus) bool { return status.Requests.RequestedTime != nil })
	kill(lab.ConfigServer)
	start(ctx, lab.Manager)
	Eventually(ctx, t.Condition(config, bootstrapv1.BootPreparedCondition)).Should(HavePrefix("True"))
	Expect(listOverlays(ctx, config)).To(HaveLen(1))
	Expect(listJoinTokens(ctx, config)).To(HaveLen(1))
	Expect(listNodes(ctx, config)).To(HaveLen(1))
}

// waitForBoot waits until a boot has reached a step, and updates config.
func waitForBoot(ctx context.Context, config *bootstrapv1.PoolbootConfig, reached func(bootstrapv1.PoolbootConfigStatus) bool) {
	GinkgoHelper()
	Eventually(ctx, func() (bool, error) {
		err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)
		return reached(config.Status), err
	}).WithPolling(crashPollingInterval).Should(BeTrue())
}

// listFreeHosts lists the names of a tenant's hosts that are available to Machines.
func listFreeHosts(ctx context.Context, t *tenant.Tenant) func() []string {
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
