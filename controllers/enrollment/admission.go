package enrollment

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// action is the action in the events of this controller.
const action = "Enroll"

// decide decides the request of a host. It returns whether to keep the request, and why it is refused if it is.
func (r *Reconciler) decide(ctx context.Context, s *scope, request poolv1.EnrollmentRequest) (keep bool, refused string, err error) {
	name := request.Name
	f := facts{namespace: s.enrollment.Namespace, name: name, request: request, spec: s.enrollment.Spec, admitted: s.enrollment.AdmittedNames(), tokenSHA256: s.token.sha256, obstacle: s.obstacle, now: s.now,
		pointerID: access.PointerID(s.enrollment.Namespace, s.enrollment.Name, name)}
	if s.target.Cluster != nil {
		f.cluster = workload.Identity(ctx, r.ClusterCache, s.target.Cluster)
		f.node, f.nodeUnknown = r.nodeOf(ctx, s, name, workload.Client)
	}
	key := client.ObjectKey{Namespace: s.enrollment.Namespace, Name: name}
	if f.config, err = workload.GetIfExists[bootstrapv1.PoolbootConfig](ctx, r.APIReader, key); err != nil {
		return false, "", err
	}
	verdict, why := decideRequest(f)
	if verdict == admit {
		// The cache can lack a Node that was created a moment before, which must not be used for this host.
		f.node, f.nodeUnknown = r.nodeOf(ctx, s, name, workload.LiveClient)
		verdict, why = decideRequest(f)
	}
	switch verdict {
	case refuse:
		return true, r.refuse(s, f, why), nil
	case wait:
		return true, request.Refused, nil
	case relocate:
		err = r.relocate(ctx, s, f)
	case admit:
		err = r.admit(ctx, s, f)
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) { // from a quota or a webhook: other hosts must not wait
			return true, r.refuse(s, f, fmt.Sprintf("the API server refuses PoolbootConfig %s of the host: %s", name, err)), nil
		}
	case forget:
	}
	return false, "", err
}

// maxRefusal is the maximum size of a reason in status.requests in bytes.
const maxRefusal = 1024

// refuse returns the reason to record why a host is not admitted. Unless it is already recorded, it is reported when
// the record is written: after a conflict, the host can be decided again.
func (r *Reconciler) refuse(s *scope, f facts, why string) string {
	why = excerpt.Of(why, maxRefusal)
	if f.request.Refused != why {
		s.reports = append(s.reports, func() {
			r.report(s, f.name, f.config, corev1.EventTypeWarning, poolv1.EventHostRefused,
				"Enrollment %s refuses host %s with address %s: %s", s.enrollment.Name, f.name, f.request.Address, why)
		})
	}
	return why
}

// connect returns a client for a workload cluster.
type connect func(context.Context, clustercache.ClusterCache, client.ObjectKey) (client.Client, error)

// readTimeout is the timeout of one read from a workload cluster. A read that takes longer than slowRead is the last
// one in a reconcile: a slow cluster must not occupy a worker that other Enrollments need.
const (
	readTimeout = 5 * time.Second
	slowRead    = time.Second
)

// nodeOf returns the Node with a name, and nil if it does not exist. It returns true if this is unknown. After an error
// or a slow read, it reads no more Nodes in this reconcile, because each read would be as slow.
func (r *Reconciler) nodeOf(ctx context.Context, s *scope, name string, connect connect) (node *corev1.Node, isUnknown bool) {
	if s.nodesErr != nil || s.isSlow {
		return nil, true
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	start := r.Now()
	defer func() { s.isSlow = r.Now().Sub(start) > slowRead }()
	cluster := client.ObjectKeyFromObject(s.target.Cluster)
	c, err := connect(ctx, r.ClusterCache, cluster)
	if err == nil {
		node, err = workload.GetIfExists[corev1.Node](ctx, c, client.ObjectKey{Name: name})
	}
	if err != nil {
		s.nodesErr = err
		ctrl.LoggerFrom(ctx).V(2).Info("Failed to read a Node: the hosts that enroll wait", "Cluster", cluster, "Node", name, "error", err.Error())
	}
	return node, err != nil
}

// admit records the name of a host in the Enrollment, and then creates its PoolbootConfig. After a crash between the
// two writes, the name is still assigned, and the next request of the host creates the PoolbootConfig.
func (r *Reconciler) admit(ctx context.Context, s *scope, f facts) error {
	if !slices.Contains(f.admitted, f.name) {
		written := s.enrollment.DeepCopy()
		written.SetAdmittedNames(append(f.admitted, f.name))
		if err := r.patch(ctx, s, written); err != nil {
			return err
		}
	}
	config := s.configFor(f)
	if err := r.Client.Create(ctx, config); err != nil {
		return err
	}
	r.report(s, f.name, config, corev1.EventTypeNormal, poolv1.EventHostAdmitted,
		"Enrollment %s admits host %s with address %s to pool %s: %d of %d uses",
		s.enrollment.Name, f.name, f.request.Address, f.spec.PoolRole, len(s.enrollment.AdmittedNames()), f.spec.MaxUses)
	return nil
}

// configFor returns the PoolbootConfig of a host. Its owner is the Cluster and not the Enrollment, which can be deleted
// after its hosts have joined.
func (s *scope) configFor(f facts) *bootstrapv1.PoolbootConfig {
	enrolled := bootstrapv1.EnrolledHost{Name: s.enrollment.Name, AddressRanges: slices.Clone(f.spec.AddressRanges)}
	host := bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeEnrollment, NodeName: f.name, Enrollment: enrolled}
	config := s.target.NewConfig(f.name, host, s.enrollment)
	config.OwnerReferences = []metav1.OwnerReference{ownerReference(s.target.Cluster)}
	maps.Copy(config.Annotations, map[string]string{
		bootstrapv1.EnrolledFromAnnotation: f.request.Address,
		bootstrapv1.PointerIDAnnotation:    f.pointerID,
		bootstrapv1.TokenHashAnnotation:    s.token.sha256,
		bootstrapv1.TokenUIDAnnotation:     string(s.token.secret),
	})
	return config
}

// relocate updates the recorded address of a host that has a new address.
func (r *Reconciler) relocate(ctx context.Context, s *scope, f facts) error {
	moved := f.config.DeepCopy()
	metav1.SetMetaDataAnnotation(&moved.ObjectMeta, bootstrapv1.EnrolledFromAnnotation, f.request.Address)
	if err := r.Client.Patch(ctx, moved, status.Locked(f.config)); err != nil {
		return err
	}
	r.report(s, f.name, moved, corev1.EventTypeNormal, poolv1.EventHostRelocated,
		"host %s, which sent no request from %s for %s, now has address %s: this does not count as another use",
		f.name, f.config.Annotations[bootstrapv1.EnrolledFromAnnotation], relocationDelay, f.request.Address)
	return nil
}

// report sends an event about a host to the Enrollment, to the pool and to the PoolbootConfig, if they exist. It sets
// the related object: otherwise the recorder counts the events about two hosts as one that is repeated.
func (r *Reconciler) report(s *scope, name string, config *bootstrapv1.PoolbootConfig, eventType, reason, note string, args ...any) {
	note = fmt.Sprintf(note, args...)
	related := &corev1.ObjectReference{
		APIVersion: bootstrapv1.GroupVersion.String(), Kind: "PoolbootConfig", Namespace: s.enrollment.Namespace, Name: name,
	}
	r.Recorder.Eventf(s.enrollment, related, eventType, reason, action, "%s", note)
	if s.target.Pool != nil {
		r.Recorder.Eventf(s.target.Pool, related, eventType, reason, action, "%s", note)
	}
	if config != nil {
		r.Recorder.Eventf(config, s.enrollment, eventType, reason, action, "%s", note)
	}
}
