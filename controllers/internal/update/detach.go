package update

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
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
		return "", d.finish(ctx, h)
	}
	volumes, err := d.attached(ctx, h.Node, claimsOf(staying))
	if err != nil {
		return "", fmt.Errorf("volumes of Node %s: %w", h.Node.Name, err)
	}
	if len(volumes) == 0 {
		return "", d.finish(ctx, h)
	}
	started, err := d.start(ctx, h, agentv1.DetachStartedAnnotation, nil)
	if err != nil {
		return "", err
	}
	if timeout := time.Duration(ptr.Deref(machine.Spec.Deletion.NodeVolumeDetachTimeoutSeconds, 0)) * time.Second; timeout > 0 && d.now.Sub(started) >= timeout {
		return "", d.finish(ctx, h)
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
