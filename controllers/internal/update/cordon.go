package update

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/core/reconcilers/machine/drain"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/ownwrites"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
)

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinedrainrules,verbs=list;watch

// drainRetry is how often the Pods and volumes of a Node are looked at while it is drained. Cluster API waits as long
// when it deletes a Machine.
const drainRetry = 20 * time.Second

// maxPods is how many Pods an event names that stay on a Node.
const maxPods = 5

// mustDrain reports whether the agent waits until its Node is drained for the update that the manager has begun, or
// until it may begin one without a drain. It waits longer while Cluster API works on the Machine.
func (h *host) mustDrain() bool {
	return h.Node != nil && h.MachineWork() == rollout.NoMachineWork && h.Report.State == agentv1.Draining &&
		h.Report.Target == h.Desired() && h.Report.Current != h.Desired() && h.Told() == h.Desired() &&
		h.Node.Annotations[agentv1.BegunAnnotation] == h.Desired() && h.Node.Annotations[agentv1.DrainedAnnotation] != h.Desired()
}

// drainer drains Nodes of one Cluster.
type drainer struct {
	// management reads MachineDrainRules. workload reads live, so that no Pods are cached.
	management, workload client.Client
	cluster              *clusterv1.Cluster
	// pool decides what happens when a drain takes too long.
	pool *poolv1.MachineConfigPool
	now  time.Time
	// written tracks the Nodes that were written.
	written *ownwrites.Tracker
	// attachments shares lists of the volumes of the Cluster.
	attachments *attachments
	// firmware reports whether Metal3 reboots the host, once its Node is drained. It is nil for a host that is updated
	// without a complete drain.
	firmware func(context.Context, *host) (bool, error)
	// controlPlane says why the control plane can't be without a Node, or "". It is nil for hosts of other pools.
	controlPlane func(ctx context.Context, node string) (string, error)
}

// drain cordons and drains the Node of a host, unless its update needs no drain. It returns what remains to be done,
// and "" when the Node is drained and its agent was told. Users control it as they control the drain of a Machine that
// is deleted: with MachineDrainRules, labels of Pods, and the annotation
// machine.cluster.x-k8s.io/exclude-node-draining. After the pool's drainTimeoutSeconds, either the Pods that remain
// stay on the Node with their volumes, or the drain goes on.
func (d drainer) drain(ctx context.Context, h *host) (remaining string, err error) {
	machine := h.Machine
	if machine == nil { // only rules for all Machines apply
		machine = &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: h.Config.Namespace, Name: h.Config.Name}}
	}
	if _, isExcluded := machine.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]; isExcluded || h.Report.NeedsNoDrain {
		d.firmware = nil
		return d.finish(ctx, h)
	}
	started, err := d.cordon(ctx, h)
	if err != nil {
		return "", err
	}
	helper := &drain.Helper{Client: d.management, RemoteClient: d.workload, GracePeriodSeconds: -1}
	if isUnreachable(h.Node) { // its kubelet ends no Pod, so the drain does not wait for Pods that are being deleted
		helper.GracePeriodSeconds, helper.SkipWaitForDeleteTimeoutSeconds = 1, 1
	}
	pods, err := helper.GetPodsForEviction(ctx, d.cluster, machine, h.Node.Name)
	if err != nil {
		return "", fmt.Errorf("drain Node %s: %w", h.Node.Name, err)
	}
	isLate := d.now.Sub(started) >= time.Duration(d.pool.Spec.Updates.DrainTimeout())*time.Second
	if isLate && d.pool.Spec.Updates.ForcesDrain() {
		if len(pods.Pods()) > 0 {
			d.firmware = nil
		}
		remaining, err = d.detach(ctx, h, machine, append(pods.SkippedPods(), pods.Pods()...))
		if names := pods.Pods(); remaining == "" && err == nil && len(names) > 0 {
			h.givenUp = fmt.Sprintf("The drain of Node %s took longer than %d seconds (spec.updates.drainTimeoutSeconds of MachineConfigPool %s), so its host is updated with these Pods "+
				"on it: %s", h.Node.Name, d.pool.Spec.Updates.DrainTimeout(), d.pool.Name, drain.PodListToString(names, maxPods))
		}
		return remaining, err
	}
	if len(pods.Pods()) > 0 {
		if result := helper.EvictPods(ctx, pods); !result.DrainCompleted() {
			remaining = result.ConditionMessage(metav1.NewTime(started))
			if isLate {
				remedy := fmt.Sprintf(". To update the host with the Pods that remain, set spec.updates.drainTimeoutPolicy of MachineConfigPool %s to Force", d.pool.Name)
				if _, ofPods, found := strings.Cut(remaining, "\n"); found { // the first line says since when
					remaining = strings.TrimSuffix(strings.TrimPrefix(ofPods, "* "), ".")
				}
				remaining = fmt.Sprintf("The drain takes longer than spec.updates.drainTimeoutSeconds (%d): %s", d.pool.Spec.Updates.DrainTimeout(), remaining)
				h.lateDrain = rollout.Clean(remaining, agentv1.MaxReason-len(remedy)) + remedy
				return h.lateDrain, nil
			}
			return rollout.Clean(remaining, agentv1.MaxReason), nil
		}
	}
	return d.detach(ctx, h, machine, pods.SkippedPods())
}

// cordon cordons the Node, and records in the same write who did it and when the drain started.
func (d drainer) cordon(ctx context.Context, h *host) (started time.Time, err error) {
	return d.start(ctx, h, agentv1.DrainStartedAnnotation, rollout.Cordon)
}

// start records in an annotation of the Node that something starts now, unless it has started. change can change the
// Node in the same write.
func (d drainer) start(ctx context.Context, h *host, key string, change func(*corev1.Node)) (started time.Time, err error) {
	node := h.Node.DeepCopy()
	if change != nil {
		change(node)
	}
	started, malformed := time.Parse(time.RFC3339, node.Annotations[key])
	isKnown := malformed == nil && !isFuture(started, d.now)
	if !isKnown {
		started = d.now
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, key, started.UTC().Format(time.RFC3339))
	}
	if isKnown && node.Spec.Unschedulable == h.Node.Spec.Unschedulable {
		return started, nil
	}
	return started, d.patch(ctx, h, node)
}

// restart lets the drain of the Node start now, also if it has started before.
func (d drainer) restart(ctx context.Context, h *host) error {
	node := h.Node.DeepCopy()
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, agentv1.DrainStartedAnnotation, d.now.UTC().Format(time.RFC3339))
	return d.patch(ctx, h, node)
}

// finish tells the agent that its Node is drained, and with the same write whether Metal3 reboots the host. A drain can
// take long, so a host of the control plane waits here if the others can't do without it any more.
func (d drainer) finish(ctx context.Context, h *host) (remaining string, err error) {
	if d.controlPlane != nil {
		if why, err := d.controlPlane(ctx, h.Node.Name); err != nil || why != "" {
			return why, err
		}
	}
	node := h.Node.DeepCopy()
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, agentv1.DrainedAnnotation, h.Desired())
	if d.firmware != nil {
		byMetal3, err := d.firmware(ctx, h)
		if err != nil {
			return "", err
		}
		if byMetal3 {
			metav1.SetMetaDataAnnotation(&node.ObjectMeta, agentv1.Metal3RebootsAnnotation, h.Desired())
		}
	}
	return "", d.patch(ctx, h, node)
}

// conclude ends what the manager began with the Node, after an update that is complete or was undone. A Node that was
// cordoned by someone else stays cordoned. With the same write, the Node names the rendered config that its host runs:
// clusterctl move drops the status, and the annotation replaces it.
func (d drainer) conclude(ctx context.Context, h *host) error {
	if h.Node == nil {
		return nil
	}
	node := h.Node.DeepCopy()
	if !h.IsDeleting() && (h.Progress() == rollout.Done || h.Progress() == rollout.Failed) {
		rollout.EndUpdate(node)
	}
	if h.runsDesired() {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, poolv1.NodeCurrentConfigAnnotation, h.Config.Status.Update.Desired.Name)
	}
	if maps.Equal(node.Annotations, h.Node.Annotations) {
		return nil
	}
	return d.patch(ctx, h, node)
}

// patch writes a Node, locked to the version that was read.
func (d drainer) patch(ctx context.Context, h *host, node *corev1.Node) error {
	if err := d.workload.Patch(ctx, node, status.Locked(h.Node)); err != nil {
		return fmt.Errorf("patch Node %s: %w", node.Name, err)
	}
	d.written.Record(node)
	h.Node = node
	return nil
}
