package metal3

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Annotations on a Metal3Remediation with the annotations and labels of its Node (metal3remediation_manager.go).
const (
	annotationsBackup = "remediation.metal3.io/node-annotations-backup"
	labelsBackup      = "remediation.metal3.io/node-labels-backup"
)

var outOfService = corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}

// findNode reads the Machine's Node, if it exists.
func (r *remediationReconciler) findNode(ctx context.Context, s *remediationScope) (err error) {
	cluster := client.ObjectKey{Namespace: s.machine.Namespace, Name: s.machine.Spec.ClusterName}
	if s.workload, err = r.workloads.client(ctx, r.Client, cluster); err != nil {
		return err
	}
	if !s.machine.Status.NodeRef.IsDefined() {
		return fmt.Errorf("no Node of Machine %s to remediate", client.ObjectKeyFromObject(s.machine))
	}
	node := &corev1.Node{}
	if err := s.workload.Get(ctx, client.ObjectKey{Name: s.machine.Status.NodeRef.Name}, node); err != nil {
		return client.IgnoreNotFound(err)
	}
	s.node = node
	return nil
}

// cleared reports whether no Pod of the Node is terminating and no volume is attached to it (IsNodeDrained).
func (s *remediationScope) cleared(ctx context.Context) (bool, error) {
	pods := &corev1.PodList{}
	if err := s.workload.List(ctx, pods, client.MatchingFields{"spec.nodeName": s.node.Name}); err != nil {
		return false, err
	}
	attachments := &storagev1.VolumeAttachmentList{}
	if err := s.workload.List(ctx, attachments); err != nil {
		return false, err
	}
	terminating := slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return !p.DeletionTimestamp.IsZero() })
	attached := slices.ContainsFunc(attachments.Items, func(a storagev1.VolumeAttachment) bool { return a.Spec.NodeName == s.node.Name })
	return !terminating && !attached, nil
}

// backUp stores the Node's annotations and labels on the remediation, and reports whether they have changed
// (backupNode).
func (s *remediationScope) backUp() (modified bool, err error) {
	for key, content := range map[string]map[string]string{annotationsBackup: s.node.Annotations, labelsBackup: s.node.Labels} {
		if len(content) == 0 {
			continue
		}
		written, err := json.Marshal(content)
		if err != nil {
			return false, err
		}
		if s.remediation.Annotations[key] != string(written) {
			metav1.SetMetaDataAnnotation(&s.remediation.ObjectMeta, key, string(written))
			modified = true
		}
	}
	return modified, nil
}

// restoreNode removes the taint from the Node, or adds the missing annotations and labels of the deleted Node to the
// new Node (restoreNode). If this write fails, the provider only logs it and loses the labels. Here it is retried,
// because specs depend on it.
func (r *remediationReconciler) restoreNode(ctx context.Context, s *remediationScope) error {
	if !r.deletesNodes.Load() {
		if !slices.ContainsFunc(s.node.Spec.Taints, isOutOfService) {
			return nil
		}
		s.node.Spec.Taints = slices.DeleteFunc(s.node.Spec.Taints, isOutOfService)
		return s.workload.Update(ctx, s.node)
	}
	for key, content := range map[string]*map[string]string{annotationsBackup: &s.node.Annotations, labelsBackup: &s.node.Labels} {
		restored := map[string]string{}
		if written := s.remediation.Annotations[key]; written != "" {
			if err := json.Unmarshal([]byte(written), &restored); err != nil {
				return fmt.Errorf("annotation %s of Metal3Remediation %s: %w", key, client.ObjectKeyFromObject(s.remediation), err)
			}
		}
		maps.Copy(restored, *content)
		*content = restored
	}
	if err := s.workload.Update(ctx, s.node); err != nil {
		return err
	}
	delete(s.remediation.Annotations, annotationsBackup)
	delete(s.remediation.Annotations, labelsBackup)
	return nil
}

func isOutOfService(taint corev1.Taint) bool { return taint.MatchTaint(&outOfService) }
