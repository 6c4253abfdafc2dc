package rollout

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

const oldConfig, newConfig = "rendered-infra-0", "rendered-infra-1"

// revisions are those of configs.
var revisions = map[string]string{oldConfig: strings.Repeat("0", 64), newConfig: strings.Repeat("1", 64), "rendered-infra-bad": strings.Repeat("b", 64)}

// site is a management cluster with a pool that hands out newConfig, and its workload cluster.
type site struct {
	live  client.WithWatch
	nodes client.WithWatch
	// watches counts the watches that were opened.
	watches atomic.Int32
}

// newSite returns a site with hosts. change can change the pool.
func newSite(change func(*poolv1.MachineConfigPool), hosts ...*bootstrapv1.PoolbootConfig) *site {
	p := &poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "infra"},
		Spec: poolv1.MachineConfigPoolSpec{ClusterName: "infra-1", PoolRole: "infra"}}
	p.Status.Configuration.Name = newConfig
	if change != nil {
		change(p)
	}
	objects, nodes := []client.Object{p}, []client.Object{}
	for _, h := range hosts {
		objects, nodes = append(objects, h), append(nodes, nodeOf(h))
	}
	s := &site{nodes: clitest.NewFakeClientBuilder(nodes...).Build()}
	s.live = clitest.NewFakeClientBuilder(objects...).WithStatusSubresource(p, &bootstrapv1.PoolbootConfig{}).
		WithIndex(p, "metadata.name", func(object client.Object) []string { return []string{object.GetName()} }).
		WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				err := c.List(ctx, list, options...)
				list.SetResourceVersion("1") // as an API server has one for every list
				return err
			},
			Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
				changes, err := c.Watch(ctx, list, options...)
				s.watches.Add(1)
				return changes, err
			},
		}).Build()
	return s
}

func (s *site) run(args ...string) clitest.Result {
	return clitest.RunOn(&clitest.FakeConnection{WithWatch: s.live, Own: s.nodes}, newCommand, append([]string{"rollout"}, args...)...)
}

// runOnTerminal runs the command on a dumb terminal.
func (s *site) runOnTerminal(args ...string) clitest.Result {
	GinkgoHelper()
	GinkgoT().Setenv("TERM", "dumb")
	return clitest.RunOnTerminal(&clitest.FakeConnection{WithWatch: s.live, Own: s.nodes}, newCommand, append([]string{"rollout"}, args...)...)
}

// change changes the status of the host on a Node.
func (s *site) change(ctx context.Context, node string, change func(*bootstrapv1.PoolbootConfig)) {
	GinkgoHelper()
	config := &bootstrapv1.PoolbootConfig{}
	Expect(s.live.Get(ctx, client.ObjectKey{Namespace: "edge", Name: node + "-config"}, config)).To(Succeed())
	before := config.DeepCopy()
	change(config)
	Expect(s.live.Status().Patch(ctx, config, client.MergeFrom(before))).To(Succeed())
}

// newHost returns a host that runs a config and was told to run one, with its condition Updated of fifteen minutes ago.
func newHost(name, runs, told string, status metav1.ConditionStatus, reason, message string) *bootstrapv1.PoolbootConfig {
	config := clitest.PoolbootConfig("infra", name, name)
	record.RevokeToken(config)
	config.Status.NodeRef.UID = "uid-" + name
	config.Status.HostRef = bootstrapv1.HostReference{Namespace: "edge", Name: "bmh-" + name, UID: "1"}
	config.Status.Boot.ServedConfiguration.Name = runs
	config.Status.Update.Desired.Name, config.Status.Update.DesiredRevision = told, revisions[told]
	setUpdated(config, status, reason, message)
	return config
}

func setUpdated(config *bootstrapv1.PoolbootConfig, status metav1.ConditionStatus, reason, message string) {
	config.Status.Conditions = []metav1.Condition{{Type: bootstrapv1.UpdatedCondition, Status: status, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(time.Now().Add(-15 * time.Minute).Truncate(time.Second))}}
}

// nodeOf returns the Ready Node of a host, as its agent annotates it. Nodes are older in the order of their names.
func nodeOf(config *bootstrapv1.PoolbootConfig) *corev1.Node {
	name := config.Status.NodeRef.Name
	state := config.Status.Conditions[0].Reason
	if state == bootstrapv1.UpdateWaitingReason {
		state = string(agentv1.Done)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(config.Status.NodeRef.UID), CreationTimestamp: metav1.NewTime(time.Unix(int64(name[len(name)-1]), 0)),
		Labels: map[string]string{"node-role.kubernetes.io/infra": ""}, Annotations: map[string]string{
			agentv1.BegunAnnotation: config.Status.Update.DesiredRevision, agentv1.DesiredAnnotation: config.Status.Update.DesiredRevision, agentv1.CurrentAnnotation: revisions[config.Status.Boot.ServedConfiguration.Name],
			agentv1.TargetAnnotation: config.Status.Update.DesiredRevision, agentv1.StateAnnotation: state, agentv1.AgentAnnotation: "v1", agentv1.ReportVersionAnnotation: "1",
		}}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return node
}

// Hosts in states of a rollout.
func joining() *bootstrapv1.PoolbootConfig {
	config := done("booting")
	config.Annotations = nil
	served := metav1.NewMicroTime(time.Now().Add(-15 * time.Minute))
	config.Status.Boot.PreparedTime, config.Status.Requests.ServedTime = &served, &served
	config.Status.Conditions = []metav1.Condition{{Type: clusterv1.ReadyCondition, Status: metav1.ConditionFalse, Message: "its kubelet is not Ready yet",
		Reason: bootstrapv1.WaitingForKubeletReason}}
	return config
}

func done(name string) *bootstrapv1.PoolbootConfig {
	return newHost(name, newConfig, newConfig, metav1.ConditionTrue, "Done", "Node "+name+" runs "+newConfig)
}

func waits(name string) *bootstrapv1.PoolbootConfig {
	return newHost(name, oldConfig, oldConfig, metav1.ConditionFalse, "Waiting", "Node "+name+" waits for other hosts")
}

func applies(name string) *bootstrapv1.PoolbootConfig {
	return newHost(name, oldConfig, newConfig, metav1.ConditionFalse, "Applying", "Node "+name+" is being changed")
}

func failed(name, config string) *bootstrapv1.PoolbootConfig {
	return newHost(name, oldConfig, config, metav1.ConditionFalse, "Degraded", "the update of Node "+name+" failed: run kubectl poolboot rollout retry infra -n edge --host "+name)
}

func paused(p *poolv1.MachineConfigPool) {
	p.Spec.Paused = ptr.To(true)
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, poolv1.PausedConfigurationAnnotation, newConfig)
}

// withNode adds the condition of the Node of a host.
func withNode(config *bootstrapv1.PoolbootConfig, reason, message string) *bootstrapv1.PoolbootConfig {
	config.Status.Conditions = append(config.Status.Conditions, metav1.Condition{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionFalse, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(time.Now().Add(-12 * time.Minute).Truncate(time.Second))})
	return config
}

func closed(p *poolv1.MachineConfigPool) {
	opens := time.Now().UTC().AddDate(0, 0, 7)
	p.Spec.Updates.MaintenanceWindow = poolv1.MaintenanceWindow{Schedule: fmt.Sprintf("0 0 %d %d *", opens.Day(), opens.Month()), DurationMinutes: 1}
}
