package e2e

import (
	"context"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/tenant"
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

	It("while its host asks leaves its host free and nothing of what was made for it", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		deployment := t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("True"))

		// The host has asked, everything is made for it, and it does not get it.
		DeferCleanup(revive)
		kill(lab.Manager)
		t.AddHosts(ctx, 1)
		Eventually(ctx, func() (bool, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)
			return config.Status.Boot.RequestedTime != nil, err
		}).Should(BeTrue())
		kill(lab.ConfigServer)
		start(ctx, lab.Manager)
		Eventually(ctx, t.Condition(config, bootstrapv1.BootPreparedCondition)).Should(HavePrefix("True"))
		Expect(overlays(ctx, config)).To(HaveLen(1))
		Expect(joinTokens(ctx, config)).To(HaveLen(1))
		Expect(nodes(ctx, config)).To(HaveLen(1))

		t.Scale(ctx, deployment, 0)
		start(ctx, lab.ConfigServer)
		Eventually(ctx, traces(ctx, t, config)).Should(BeEmpty())
		Eventually(ctx, free(ctx, t)).Should(HaveExactElements(t.HostName(0)))
		Consistently(ctx, traces(ctx, t, config)).Should(BeEmpty())
		Expect(lab.WorkloadClient.Get(ctx, client.ObjectKey{Name: config.Status.Node.Name}, &corev1.Node{})).NotTo(Succeed())
	}, SpecTimeout(3*time.Minute))

	It("before Cluster API knows its Node leaves no Node either", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		deployment := t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
		switchedOff(ctx, t, config)
		Eventually(ctx, answer).WithArguments(t.Pointer(ctx, config)).Should(Equal(200), "somebody asks in the host's place")
		Expect(nodes(ctx, config)).To(HaveLen(1))
		Expect(t.Machine(ctx, config).Status.NodeRef.IsDefined()).To(BeFalse())
		t.Scale(ctx, deployment, 0)
		Eventually(ctx, traces(ctx, t, config)).Should(BeEmpty())
	})
})

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
