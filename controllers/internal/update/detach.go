package update

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// detach waits until the volumes of the Pods that left the Node are detached from it, as Cluster API does before it
// deletes a Machine, and then tells the agent. A host that is switched off by its update while a volume is attached can
// keep the volume from being attached elsewhere for minutes. Users control it as they control deletions: with the
// annotation machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach, and with
// spec.deletion.nodeVolumeDetachTimeoutSeconds of the Machine. Volumes of the Pods that stay on the Node stay too.
func (d drainer) detach(ctx context.Context, h *host, machine *clusterv1.Machine, staying []*corev1.Pod) (remaining string, err error) {
	_, isExcluded := machine.Annotations[clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation]
	if isExcluded || isUnreachable(h.Node) { // nothing detaches the volumes of a Node that can't be reached
		return d.finish(ctx, h)
	}
	volumes, err := d.attached(ctx, h.Node, claimsOf(staying))
	if err != nil {
		return "", fmt.Errorf("volumes of Node %s: %w", h.Node.Name, err)
	}
	if len(volumes) == 0 {
		return d.finish(ctx, h)
	}
	started, err := d.start(ctx, h, agentv1.DetachStartedAnnotation, nil)
	if err != nil {
		return "", err
	}
	if timeout := time.Duration(ptr.Deref(machine.Spec.Deletion.NodeVolumeDetachTimeoutSeconds, 0)) * time.Second; timeout > 0 && d.now.Sub(started) >= timeout {
		return d.finish(ctx, h)
	}
	return rollout.Clean(fmt.Sprintf("Since %s, these volumes are still attached to the Node: %s",
		started.UTC().Format(time.RFC3339), strings.Join(volumes, ", ")), agentv1.MaxReason), nil
}

// isUnreachable reports whether the kubelet of a Node has stopped to report its status.
func isUnreachable(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown
	})
}

// claimsOf returns the PersistentVolumeClaims of Pods.
func claimsOf(pods []*corev1.Pod) map[client.ObjectKey]bool {
	claims := map[client.ObjectKey]bool{}
	for _, pod := range pods {
		for i := range pod.Spec.Volumes {
			if claim := pod.Spec.Volumes[i].PersistentVolumeClaim; claim != nil {
				claims[client.ObjectKey{Namespace: pod.Namespace, Name: claim.ClaimName}] = true
			}
		}
	}
	return claims
}

// attached describes the volumes that are attached to a Node, except those of the claims that stay. They have a
// VolumeAttachment, the status of the Node names them, or both. The volumes of in-tree drivers have no
// VolumeAttachment, so whose they are is not known.
func (d drainer) attached(ctx context.Context, node *corev1.Node, staying map[client.ObjectKey]bool) (volumes []string, err error) {
	reported := map[string]bool{}
	for i := range node.Status.VolumesAttached {
		reported[string(node.Status.VolumesAttached[i].Name)] = true
	}
	add := func(pv *corev1.PersistentVolume, name string) {
		delete(reported, reportedName(pv))
		claim := claimOf(pv)
		if claim.Name != "" {
			name = "PersistentVolumeClaim " + claim.String()
		}
		if !staying[claim] {
			volumes = append(volumes, name)
		}
	}
	attached, err := d.attachments.ofNode(ctx, d.workload, client.ObjectKeyFromObject(d.cluster), node.Name)
	if err != nil {
		return nil, err
	}
	for i := range attached {
		volume := ptr.Deref(attached[i].Spec.Source.PersistentVolumeName, "")
		if volume == "" {
			add(nil, "VolumeAttachment "+attached[i].Name)
			continue
		}
		pv, err := workload.GetIfExists[corev1.PersistentVolume](ctx, d.workload, client.ObjectKey{Name: volume})
		if err != nil {
			return nil, fmt.Errorf("read PersistentVolume %s: %w", volume, err)
		}
		add(pv, "PersistentVolume "+volume)
	}
	for name := range reported {
		volumes = append(volumes, "volume "+name)
	}
	slices.Sort(volumes)
	return volumes, nil
}

// reportedName returns how the status of a Node names a volume. It returns "" if that does not follow from the
// PersistentVolume, which can be nil.
func reportedName(pv *corev1.PersistentVolume) string {
	if pv == nil || pv.Spec.CSI == nil {
		return ""
	}
	return "kubernetes.io/csi/" + pv.Spec.CSI.Driver + "^" + pv.Spec.CSI.VolumeHandle
}

// claimOf returns the PersistentVolumeClaim to which a PersistentVolume, which can be nil, is bound.
func claimOf(pv *corev1.PersistentVolume) client.ObjectKey {
	if pv == nil || pv.Spec.ClaimRef == nil {
		return client.ObjectKey{}
	}
	return client.ObjectKey{Namespace: pv.Spec.ClaimRef.Namespace, Name: pv.Spec.ClaimRef.Name}
}

const (
	// pageSize is how many VolumeAttachments are read at a time.
	pageSize = 500
	// maxPages limits what is read: an API server of a workload cluster can answer with pages without end.
	maxPages = 400
)

// attachments shares lists of VolumeAttachments. An API server can't select those of one Node, and hundreds of hosts
// can be drained at the same time. So all volumes of a Cluster are listed once at a time, for all drains that asked
// before the list began. The zero value is ready to use.
type attachments struct {
	clusters sync.Map // client.ObjectKey → *attachmentList
}

// attachmentList is the last list of the VolumeAttachments of a Cluster.
type attachmentList struct {
	// turn is acquired by the one who lists, or reads the list. waiting are those who have it or wait for it: without
	// any, nothing is kept.
	turn    *semaphore.Weighted
	waiting atomic.Int32
	// began is when the list began. byNode has the VolumeAttachments of attached volumes by the names of the Nodes,
	// which must not be changed.
	began  time.Time
	byNode map[string][]storagev1.VolumeAttachment
	err    error
}

// errNotListed is the error of a list that did not end.
var errNotListed = errors.New("the list of VolumeAttachments did not end")

// ofNode returns the VolumeAttachments of the volumes that are attached to a Node. They are from a list that began
// after the call. live reads from the API server of the Cluster.
func (a *attachments) ofNode(ctx context.Context, live client.Reader, cluster client.ObjectKey, node string) ([]storagev1.VolumeAttachment, error) {
	asked := time.Now()
	known, _ := a.clusters.LoadOrStore(cluster, &attachmentList{turn: semaphore.NewWeighted(1)})
	list := known.(*attachmentList)
	list.waiting.Add(1)
	if err := list.turn.Acquire(ctx, 1); err != nil {
		list.waiting.Add(-1)
		return nil, err
	}
	defer func() {
		if list.waiting.Add(-1) == 0 {
			list.began, list.byNode = time.Time{}, nil
		}
		list.turn.Release(1)
	}()
	if list.began.Before(asked) {
		list.began, list.byNode, list.err = time.Now(), nil, errNotListed
		list.byNode, list.err = listAttachments(ctx, live)
	}
	return list.byNode[node], list.err
}

func listAttachments(ctx context.Context, live client.Reader) (map[string][]storagev1.VolumeAttachment, error) {
	byNode, next := map[string][]storagev1.VolumeAttachment{}, ""
	for range maxPages {
		page := &storagev1.VolumeAttachmentList{}
		if err := live.List(ctx, page, client.Limit(pageSize), client.Continue(next)); err != nil {
			return nil, fmt.Errorf("list VolumeAttachments: %w", err)
		}
		for i := range page.Items {
			if item := &page.Items[i]; item.Status.Attached {
				byNode[item.Spec.NodeName] = append(byNode[item.Spec.NodeName], *item)
			}
		}
		if next = page.Continue; next == "" {
			return byNode, nil
		}
	}
	return nil, fmt.Errorf("list VolumeAttachments: the cluster has more than %d", maxPages*pageSize)
}
