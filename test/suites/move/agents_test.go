package move

import (
	"context"
	"fmt"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// laterFile is the file that the update of the running hosts creates, without a reboot.
const laterFile = "/etc/later"

// changePool changes the pool infra.
func changePool(ctx context.Context, s *site.Site, t *tenant.Tenant, change func(*poolv1.MachineConfigPool)) {
	GinkgoHelper()
	infra := getPool(ctx, s, t)
	before := infra.DeepCopy()
	change(infra)
	Expect(s.ManagementClient.Patch(ctx, infra, client.MergeFrom(before))).To(Succeed())
}

// preparePool gives the hosts of the pool infra a derived label, which is in the flags of their kubelets, and lets them
// write laterFile without a reboot.
func preparePool(ctx context.Context, s *site.Site, t *tenant.Tenant) {
	GinkgoHelper()
	changePool(ctx, s, t, func(infra *poolv1.MachineConfigPool) {
		infra.Spec.Node.LabelRules = []nodev1.NodeLabelRule{{Key: "example.com/site", ValueExpression: "host.name.split('-')[0]", OnMissing: nodev1.OnMissingBlock}}
		infra.Spec.Updates.MinReadySeconds = ptr.To[int32](1)
		infra.Spec.Updates.DisruptionPolicy.Files = []poolv1.PathDisruptionPolicy{{Path: laterFile, Actions: poolv1.DisruptionActions{{Type: poolv1.ActionNone}}}}
	})
}

// revisionsOf waits until the agents of all joined hosts have what they were told, and returns it by Node.
func revisionsOf(ctx context.Context, s *site.Site, t *tenant.Tenant) map[string]string {
	GinkgoHelper()
	revisions := map[string]string{}
	Eventually(ctx, func(g Gomega) {
		configs := &bootstrapv1.PoolbootConfigList{}
		g.Expect(s.ManagementClient.List(ctx, configs, client.InNamespace(t.Namespace))).To(Succeed())
		for _, config := range configs.Items {
			if rollout.IsFollowed(&config) {
				g.Expect(conditions.IsTrue(&config, bootstrapv1.UpdatedCondition)).To(BeTrue(), config.Name)
				revisions[config.Status.NodeRef.Name] = config.Status.Update.DesiredRevision
			}
		}
	}).Should(Succeed())
	return revisions
}

// updatingNodes returns the Nodes of hosts that were told to run something else than they run, in the last version of
// each Node, and how many there were at most in any version of all Nodes.
func updatingNodes(history *site.NodeHistory) (now []string, most int) {
	updating := map[string]bool{}
	for _, version := range history.Versions() {
		is := version.Node.Annotations
		delete(updating, version.Node.Name)
		if told, current := is[agentv1.DesiredAnnotation], is[agentv1.CurrentAnnotation]; !version.Deleted && told != "" && current != "" && told != current {
			updating[version.Node.Name] = true
		}
		most = max(most, len(updating))
	}
	for name := range updating {
		now = append(now, name)
	}
	return now, most
}

// beginUpdate resumes the pool, and waits until a host was told to begin its update. The config server must be stopped,
// so that the host can't complete it.
func beginUpdate(ctx context.Context, s *site.Site, t *tenant.Tenant, history *site.NodeHistory) {
	GinkgoHelper()
	changePool(ctx, s, t, func(infra *poolv1.MachineConfigPool) {
		infra.Spec.Paused = nil
		delete(infra.Annotations, poolv1.PausedConfigurationAnnotation)
	})
	Eventually(ctx, func() []string {
		now, _ := updatingNodes(history)
		return now
	}).Should(HaveLen(1))
}

// expectUpdated waits until all hosts are updated, expects that they were one after the other, and returns the rendered
// config that they run.
func expectUpdated(ctx context.Context, s *site.Site, t *tenant.Tenant, history *site.NodeHistory) string {
	GinkgoHelper()
	// An agent that could not reach the config server during the move tries again after up to a minute.
	Eventually(ctx, func(g Gomega) {
		infra := getPool(ctx, s, t)
		g.Expect(conditions.IsTrue(infra, poolv1.UpdatedCondition)).To(BeTrue(), "%s", describe(ctx, s, t, infra))
	}, "4m").Should(Succeed())
	revisionsOf(ctx, s, t)
	_, most := updatingNodes(history)
	Expect(most).To(Equal(1))
	return getPool(ctx, s, t).Status.Configuration.Name
}

// describe returns the conditions of the pool and of its hosts, what the hosts were told and report, and the states of
// their BareMetalHosts, a line each.
func describe(ctx context.Context, s *site.Site, t *tenant.Tenant, infra *poolv1.MachineConfigPool) string {
	GinkgoHelper()
	lines := &strings.Builder{}
	list := func(of interface {
		client.Object
		conditions.Getter
	}) {
		for _, condition := range of.GetConditions() {
			fmt.Fprintln(lines, of.GetName(), condition.Type, condition.Status, condition.Reason, condition.Message)
		}
	}
	list(infra)
	configs, nodes := &bootstrapv1.PoolbootConfigList{}, &corev1.NodeList{}
	Expect(s.ManagementClient.List(ctx, configs, client.InNamespace(t.Namespace))).To(Succeed())
	for i := range configs.Items {
		list(&configs.Items[i])
	}
	Expect(s.WorkloadClient.List(ctx, nodes)).To(Succeed())
	for i := range nodes.Items {
		is := nodes.Items[i].Annotations
		fmt.Fprintln(lines, nodes.Items[i].Name, "told", is[agentv1.DesiredAnnotation], "has", is[agentv1.CurrentAnnotation], is[agentv1.StateAnnotation], is[agentv1.ReasonAnnotation])
	}
	hosts := &bmov1alpha1.BareMetalHostList{}
	Expect(s.ManagementClient.List(ctx, hosts, client.InNamespace(t.Namespace))).To(Succeed())
	for i := range hosts.Items {
		status := hosts.Items[i].Status
		fmt.Fprintln(lines, hosts.Items[i].Name, status.Provisioning.State, status.PoweredOn, status.ErrorMessage, fmt.Sprintf("%+v", status.OperationHistory.Provision))
	}
	return lines.String()
}
