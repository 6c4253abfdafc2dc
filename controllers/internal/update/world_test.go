package update

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

func TestUpdate(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Update controller")
}

var (
	clusterKey = client.ObjectKey{Namespace: "edge", Name: "site"}
	poolKey    = client.ObjectKey{Namespace: "edge", Name: poolv1.RoleWorker}
)

// world is a management cluster, a workload cluster, the agents of hosts, and the reconcilers between them.
type world struct {
	management, workload client.WithWatch
	events               *events.FakeRecorder
	reconciler           *manager
	controllertest.Process
	// afterWrite is called after each write of the reconcilers that took effect.
	afterWrite func()
	// evict answers an eviction. Nil evicts.
	evict func(*corev1.Pod) error
	// passed is how much time has passed, in addition to that of the test.
	passed time.Duration
	// isOff are the names of the hosts without power. renewals counts how often kubelets have renewed Leases.
	isOff    sets.Set[string]
	renewals int64
	// force is part of each assignment.
	force string
}

// hostName returns the name of a host, its Machine and its Node.
func hostName(i int) string { return fmt.Sprintf("host-%d", i) }

// newWorld returns a world whose hosts have joined a pool with the rendered config rendered-worker-1, and run agents
// that have adopted nothing.
func newWorld(hosts int) *world {
	w := &world{events: events.NewFakeRecorder(10000), isOff: sets.New[string]()}
	cluster := controllertest.NewCluster(clusterKey)
	cluster.UID = "cluster-uid"
	cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "site.example", Port: 6443}
	p := controllertest.NewPool(clusterKey, poolv1.RoleWorker)
	p.Status.Configuration.Name = "rendered-worker-1"
	p.Status.SlotsOpenTime = &metav1.Time{Time: time.Unix(1_700_000_000, 0)}
	management := []client.Object{cluster, p}
	workload := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}}
	for i := range hosts {
		config, machine, node := newObjects(hostName(i))
		node.CreationTimestamp = metav1.NewTime(time.Unix(int64(1_700_000_000+i), 0))
		management, workload = append(management, config, machine), append(workload, node)
		management = append(management, secretOf(config, newDocument(config, "rendered-worker-1", "")))
	}
	w.management = controllertest.NewClientBuilder(management...).
		WithStatusSubresource(&bootstrapv1.PoolbootConfig{}, &poolv1.MachineConfigPool{}).Build()
	w.workload = controllertest.NewClientBuilder(workload...).WithStatusSubresource(&corev1.Node{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).Build()
	w.reconciler = w.newManager(w.Write)
	return w
}

// addOtherPools adds pools that have no hosts.
func (w *world) addOtherPools(ctx context.Context) {
	GinkgoHelper()
	for i := range 5 {
		other := controllertest.NewPool(clusterKey, fmt.Sprint("other-", i))
		other.UID = types.UID(other.Name)
		Expect(w.management.Create(ctx, other)).To(Succeed())
	}
}

// newDrainingWorld returns a world with two hosts, of which the first one waits for its drain to run rendered-worker-2.
func newDrainingWorld(ctx context.Context) *world {
	GinkgoHelper()
	w := newWorld(2)
	w.adopt(ctx)
	w.render(ctx, "rendered-worker-2")
	w.settle(ctx)
	w.reports(ctx, 0, agentv1.Draining, revisionOf(0, "rendered-worker-2"), "")
	return w
}

func newDocument(config *bootstrapv1.PoolbootConfig, rendered, force string) []byte {
	GinkgoHelper()
	document, err := assignment.Encode(assignment.Assignment{
		Node: config.Name, Config: assignment.RenderedConfig{Name: rendered, SHA512: strings.Repeat("a", 128)},
		Machine: json.RawMessage(`{}`), ReadyDeadlineSeconds: 60, Force: force,
	})
	Expect(err).NotTo(HaveOccurred())
	return document
}

func newObjects(name string) (*bootstrapv1.PoolbootConfig, *clusterv1.Machine, *corev1.Node) {
	config := controllertest.NewConfig(clusterKey, name)
	config.UID = types.UID(name + "-config")
	config.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name, UID: types.UID(name + "-machine")}}
	record.RevokeToken(config)
	config.Status.PoolRole, config.Status.Boot.ServedConfiguration.Name = poolv1.RoleWorker, "rendered-worker-1"
	config.Status.NodeRef = bootstrapv1.NodeReference{Name: name, UID: name + "-node"}
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: clusterKey.Namespace, Name: name, UID: types.UID(name + "-machine"), Labels: map[string]string{clusterv1.ClusterNameLabel: clusterKey.Name},
	}}
	machine.Spec.ClusterName = clusterKey.Name
	node := controllertest.NewNode(name, poolv1.RoleWorker)
	node.UID, node.Spec.ProviderID = types.UID(name+"-node"), "metal3://edge/"+name+"/m"
	node.Annotations = map[string]string{poolv1.NodeConfigAnnotation: record.Key(config).String(), agentv1.ReportVersionAnnotation: "1", agentv1.AgentAnnotation: "v0.1.0"}
	setReady(node, true)
	return config, machine, node
}

func setReady(node *corev1.Node, isReady bool) {
	status := corev1.ConditionFalse
	if isReady {
		status = corev1.ConditionTrue
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.Now()}}
}

func secretOf(config *bootstrapv1.PoolbootConfig, document []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "poolboot-system", Name: bootstrapv1.AssignmentNamePrefix + string(config.UID),
			Labels: map[string]string{bootstrapv1.AssignmentLabel: string(config.UID)}},
		Data: map[string][]byte{bootstrapv1.AssignmentKey: document, bootstrapv1.AssignmentClientCAKey: []byte("the CA of the cluster")},
	}
}

func (w *world) config(ctx context.Context, i int) *bootstrapv1.PoolbootConfig {
	GinkgoHelper()
	config := &bootstrapv1.PoolbootConfig{}
	Expect(w.management.Get(ctx, client.ObjectKey{Namespace: clusterKey.Namespace, Name: hostName(i)}, config)).To(Succeed())
	return config
}

func (w *world) machine(ctx context.Context, i int) *clusterv1.Machine {
	GinkgoHelper()
	machine := &clusterv1.Machine{}
	Expect(w.management.Get(ctx, client.ObjectKey{Namespace: clusterKey.Namespace, Name: hostName(i)}, machine)).To(Succeed())
	return machine
}

func (w *world) node(ctx context.Context, i int) *corev1.Node {
	GinkgoHelper()
	node := &corev1.Node{}
	Expect(w.workload.Get(ctx, client.ObjectKey{Name: hostName(i)}, node)).To(Succeed())
	return node
}

// changeNode changes a Node as its host does.
func (w *world) changeNode(ctx context.Context, i int, change func(*corev1.Node)) {
	GinkgoHelper()
	node := w.node(ctx, i)
	before := node.Status.DeepCopy()
	change(node)
	status := node.Status.DeepCopy()
	Expect(w.workload.Update(ctx, node)).To(Succeed())
	if !equality.Semantic.DeepEqual(before, status) {
		node.Status = *status
		Expect(w.workload.Status().Update(ctx, node)).To(Succeed())
	}
}

// reports sets what the agent of a host reports about a revision.
func (w *world) reports(ctx context.Context, i int, state agentv1.State, revision, reason string) {
	GinkgoHelper()
	w.changeNode(ctx, i, func(node *corev1.Node) {
		node.Annotations[agentv1.StateAnnotation], node.Annotations[agentv1.TargetAnnotation] = string(state), revision
		node.Annotations[agentv1.ReasonAnnotation] = reason
		if state == agentv1.Done {
			node.Annotations[agentv1.CurrentAnnotation] = revision
		}
	})
}

// changePool changes the pool and its status.
func (w *world) changePool(ctx context.Context, change func(*poolv1.MachineConfigPool)) {
	GinkgoHelper()
	p := &poolv1.MachineConfigPool{}
	Expect(w.management.Get(ctx, poolKey, p)).To(Succeed())
	change(p)
	status := p.Status.DeepCopy()
	Expect(w.management.Update(ctx, p)).To(Succeed())
	p.Status = *status
	Expect(w.management.Status().Update(ctx, p)).To(Succeed())
}

func (w *world) render(ctx context.Context, name string) {
	GinkgoHelper()
	w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Status.Configuration.Name = name })
}

func (w *world) reconcilePool(ctx context.Context) (ctrl.Result, error) {
	return w.reconciler.reconcilePool(ctx, poolKey)
}

func (w *world) reconcileHost(ctx context.Context, i int) (ctrl.Result, error) {
	return w.reconciler.Reconcile(ctx, requestFor(i))
}

func requestFor(i int) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKey{Namespace: clusterKey.Namespace, Name: hostName(i)}}
}

// slots returns the names of the hosts with slots.
func (w *world) slots(ctx context.Context) []string {
	GinkgoHelper()
	p := &poolv1.MachineConfigPool{}
	Expect(w.management.Get(ctx, poolKey, p)).To(Succeed())
	names := []string{}
	for _, slot := range p.Status.Slots {
		names = append(names, slot.Host)
	}
	return names
}

// roll reconciles the pool once, and then each host once.
func (w *world) roll(ctx context.Context) error {
	_, err := w.reconcilePool(ctx)
	for i := range w.size(ctx) {
		_, failed := w.reconcileHost(ctx, i)
		err = errors.Join(err, failed)
	}
	return err
}

// settle reconciles the pool and all hosts until nothing more is written.
func (w *world) settle(ctx context.Context) {
	GinkgoHelper()
	for range 50 {
		before := w.Writes
		w.Settle(func() (ctrl.Result, error) { return w.reconcilePool(ctx) })
		for i := range w.size(ctx) {
			w.Settle(func() (ctrl.Result, error) { return w.reconcileHost(ctx, i) })
		}
		if w.Writes == before {
			return
		}
	}
	Fail("the reconcilers never settle")
}

func (w *world) size(ctx context.Context) int {
	GinkgoHelper()
	configs := &bootstrapv1.PoolbootConfigList{}
	Expect(w.management.List(ctx, configs)).To(Succeed())
	return len(configs.Items)
}

// told returns the indexes of the hosts that were told to have a revision other than the one that they have.
func (w *world) told(ctx context.Context) (hosts []int) {
	GinkgoHelper()
	for i := range w.size(ctx) {
		node := &corev1.Node{}
		err := w.workload.Get(ctx, client.ObjectKey{Name: hostName(i)}, node)
		if apierrors.IsNotFound(err) {
			continue
		}
		Expect(err).NotTo(HaveOccurred())
		told, current := node.Annotations[agentv1.DesiredAnnotation], node.Annotations[agentv1.CurrentAnnotation]
		if told != "" && current != "" && told != current {
			hosts = append(hosts, i)
		}
	}
	return hosts
}

// adopt lets all agents adopt what they were told, as after the first boot.
func (w *world) adopt(ctx context.Context) {
	GinkgoHelper()
	w.settle(ctx)
	for i := range w.size(ctx) {
		told := w.node(ctx, i).Annotations[agentv1.DesiredAnnotation]
		Expect(told).NotTo(BeEmpty())
		w.reports(ctx, i, agentv1.Done, told, "")
	}
	w.settle(ctx)
}

// complete lets the agent of a host complete its update.
func (w *world) complete(ctx context.Context, i int) {
	GinkgoHelper()
	w.reports(ctx, i, agentv1.Done, w.node(ctx, i).Annotations[agentv1.DesiredAnnotation], "")
}

func (w *world) updated(ctx context.Context, i int) *metav1.Condition {
	GinkgoHelper()
	condition := conditions.Get(w.config(ctx, i), bootstrapv1.UpdatedCondition)
	Expect(condition).NotTo(BeNil())
	return condition
}

// eventsOf returns the events since the last call that contain a text.
func (w *world) eventsOf(text string) []string {
	return slices.DeleteFunc(controllertest.Events(w.events), func(event string) bool { return !strings.Contains(event, text) })
}
