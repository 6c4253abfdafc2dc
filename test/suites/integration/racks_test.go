package integration

import (
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var _ = It("Labels of BareMetalHosts provide the racks: their Nodes have them from the first version, and one rack is updated after the other", func(ctx SpecContext) {
	const label = "example.com/rack"
	racks := []string{"r2", "r1", "r2", "r1"}
	t := tenant.New(ctx, lab, len(racks), func(p *poolv1.MachineConfigPool) {
		p.Spec.Node.LabelRules = []nodev1.NodeLabelRule{{Key: label, ValueExpression: `host.labels["rack"]`, OnMissing: nodev1.OnMissingBlock}}
		p.Spec.Updates.FailureDomainLabel, p.Spec.MaxUnavailable = label, ptr.To(intstr.FromInt32(3))
	})
	rackOf := map[string]string{} // by BareMetalHost
	for i, rack := range racks {
		host := newHost(t, t.HostName(i))
		patch(ctx, host, func(h *bmov1alpha1.BareMetalHost) { metav1.SetMetaDataLabel(&h.ObjectMeta, "rack", rack) })
		rackOf[host.Name] = rack
	}
	history, err := site.RecordNodes(ctx, lab.WorkloadClient)
	Expect(err).NotTo(HaveOccurred())
	t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: int32(len(racks)), Labels: infraLabels})
	nodes := joinHosts(ctx, t, "infra", len(racks))
	configs := t.Configs(ctx, "infra")
	rackOfNode := map[string]string{}
	for i := range configs {
		node := configs[i].Status.NodeRef.Name
		rackOfNode[node] = rackOf[configs[i].Status.HostRef.Name]
		versions := history.Of(node)
		Expect(versions[0].Node.Status.NodeInfo.KubeletVersion).To(BeEmpty(), "no kubelet has registered yet")
		for _, version := range versions {
			Expect(version.Node.Labels).To(HaveKeyWithValue(label, rackOfNode[node]))
		}
	}
	Expect(rackOfNode).To(HaveLen(len(racks)))
	booted := len(history.Versions())

	t.Create(ctx, t.MachineConfig("52-racks", "infra", "/etc/racks", "1"))
	infra := t.Pool("infra")
	Eventually(ctx, func() (string, error) {
		err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(infra), infra)
		return infra.Status.Configuration.Name, err
	}).ShouldNot(Equal(configs[0].Status.Boot.ServedConfiguration.Name))
	for i := range configs {
		Eventually(ctx, t.Condition(&configs[i], bootstrapv1.UpdatedCondition)).Should(HavePrefix("True Done: Node " + configs[i].Status.NodeRef.Name + " runs " + infra.Status.Configuration.Name))
	}

	var order []string // the racks in the order in which their hosts were told
	updating := map[string]bool{}
	for _, version := range history.Versions()[booted:] {
		node := version.Node
		rack, isOurs := rackOfNode[node.Name]
		if !isOurs {
			continue
		}
		told, current := node.Annotations[agentv1.DesiredAnnotation], node.Annotations[agentv1.CurrentAnnotation]
		if told != current && !updating[node.Name] {
			order = append(order, rack)
		}
		updating[node.Name] = told != current || node.Spec.Unschedulable
		for other, is := range updating {
			Expect(is && rackOfNode[other] != rack && updating[node.Name]).To(BeFalse(), "%s of %s and %s are updated at the same time", node.Name, rack, other)
		}
	}
	Expect(order).To(Equal([]string{"r1", "r1", "r2", "r2"}))
	Expect(maxUnavailableOf(history, nodes)).To(Equal(2), "the hosts of a rack are updated at the same time")
}, SpecTimeout(6*time.Minute))
