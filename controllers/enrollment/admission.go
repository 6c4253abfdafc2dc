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
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/enroll"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// action is what events say this controller was doing.
const action = "Enroll"

// decide decides on a host that asks, and says whether its request stays, and why it is refused if it is.
func (r *Reconciler) decide(ctx context.Context, s *scope, request poolv1.EnrollmentRequest) (stays bool, refused string, err error) {
	name := request.Name
	f := facts{namespace: s.enrollment.Namespace, name: name, request: request, spec: s.enrollment.Spec, tokenSHA256: s.token.sha256, closed: s.closed, now: s.now,
		pointerID: enroll.PointerID(s.enrollment.Namespace, s.enrollment.Name, name)}
	if s.place.Cluster != nil {
		f.cluster = workload.Identity(ctx, r.ClusterCache, s.place.Cluster)
		f.node, f.nodeUnknown = r.nodeOf(ctx, s, name, workload.Client)
	}
	config := &bootstrapv1.PoolbootConfig{}
	if err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: s.enrollment.Namespace, Name: name}, config); err == nil {
		f.config = config
	} else if !apierrors.IsNotFound(err) {
		return false, "", err
	}
	verdict, why := judge(f)
	if verdict == admit {
		// What the cache does not have yet would cost a use, and its Node would be taken for the new host's.
		f.node, f.nodeUnknown = r.nodeOf(ctx, s, name, workload.LiveClient)
		verdict, why = judge(f)
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
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) { // by a quota or a webhook: that must not keep other hosts waiting
			return true, r.refuse(s, f, fmt.Sprintf("the API server refuses PoolbootConfig %s of the host: %s", name, err)), nil
		}
	case forget:
	}
	return false, "", err
}

// maxRefusal is how many characters status.requests holds of why a host is refused.
const maxRefusal = 1024

// refuse tells why a host is not admitted, unless that is on record, and returns what to record of it.
func (r *Reconciler) refuse(s *scope, f facts, why string) string {
	if long := []rune(why); len(long) > maxRefusal {
		why = string(long[:maxRefusal-1]) + "…"
	}
	if f.request.Refused != why {
		r.report(s, f.name, f.config, corev1.EventTypeWarning, poolv1.EventHostRefused, "%s, which asks from %s, is not admitted by Enrollment %s: %s",
			f.name, f.request.Address, s.enrollment.Name, why)
	}
	return why
}

// connect opens the way into a workload cluster.
type connect func(context.Context, clustercache.ClusterCache, client.ObjectKey) (client.Client, error)

// readTimeout bounds one read of a workload cluster; one that takes longer than slowRead is the last of its Reconcile.
// A slow cluster must not keep a worker from the Enrollments of others.
const (
	readTimeout = 5 * time.Second
	slowRead    = time.Second
)

// nodeOf returns the Node of a name, nil when it does not exist, and true when that can't be told. One failure, or a
// slow answer, counts for all hosts that are left in this Reconcile: each of them would wait for the same.
func (r *Reconciler) nodeOf(ctx context.Context, s *scope, name string, connect connect) (found *corev1.Node, isUnknown bool) {
	if s.unreadable != nil || s.isSlow {
		return nil, true
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	begun := r.Now()
	defer func() { s.isSlow = r.Now().Sub(begun) > slowRead }()
	node, cluster := &corev1.Node{}, client.ObjectKeyFromObject(s.place.Cluster)
	c, err := connect(ctx, r.ClusterCache, cluster)
	if err == nil {
		err = c.Get(ctx, client.ObjectKey{Name: name}, node)
	}
	switch {
	case err == nil:
		return node, false
	case apierrors.IsNotFound(err):
		return nil, false
	}
	ctrl.LoggerFrom(ctx).V(2).Info("Hosts that enroll wait: the Nodes of their Cluster can't be read", "Cluster", cluster, "Node", name, "error", err.Error())
	s.unreadable = err
	return nil, true
}

// admit gives a host its name and creates its record. The name is written down first: after a crash between the two it
// is known as given, and the record is made when the host asks again.
func (r *Reconciler) admit(ctx context.Context, s *scope, f facts) error {
	if !slices.Contains(f.spec.Admitted, f.name) {
		written := s.enrollment.DeepCopy()
		written.Spec.Admitted = append(written.Spec.Admitted, f.name)
		if err := r.patch(ctx, s, written); err != nil {
			return err
		}
	}
	config := s.configFor(f)
	if err := r.Client.Create(ctx, config); err != nil {
		return err
	}
	r.report(s, f.name, config, corev1.EventTypeNormal, poolv1.EventHostAdmitted, "%s, which asks from %s, is admitted to pool %s by Enrollment %s: %d of %d uses",
		f.name, f.request.Address, f.spec.PoolRole, s.enrollment.Name, len(s.enrollment.Spec.Admitted), f.spec.MaxUses)
	return nil
}

// configFor returns the record of a host: what the pool's template says, for this host. It belongs to the Cluster, not
// to the Enrollment, which may be deleted once the hosts have joined.
func (s *scope) configFor(f facts) *bootstrapv1.PoolbootConfig {
	config := s.place.NewConfig(f.name, bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeEnrollment, NodeName: f.name, Enrollment: bootstrapv1.EnrolledHost{
		Name: s.enrollment.Name, Address: f.request.Address, AddressRanges: slices.Clone(f.spec.AddressRanges),
	}})
	config.OwnerReferences = []metav1.OwnerReference{ownedBy(s.place.Cluster)}
	maps.Copy(config.Labels, s.labels())
	maps.Copy(config.Annotations, map[string]string{
		bootstrapv1.PointerIDAnnotation: f.pointerID,
		bootstrapv1.TokenHashAnnotation: s.token.sha256,
		bootstrapv1.TokenUIDAnnotation:  string(s.token.secret),
	})
	return config
}

// relocate lets a host go on from the address that it has now.
func (r *Reconciler) relocate(ctx context.Context, s *scope, f facts) error {
	moved := f.config.DeepCopy()
	enrolled := moved.Spec.Enrolled()
	enrolled.Address, enrolled.AddressRanges = f.request.Address, slices.Clone(f.spec.AddressRanges)
	if err := r.Client.Patch(ctx, moved, status.Locked(f.config)); err != nil {
		return err
	}
	r.report(s, f.name, moved, corev1.EventTypeNormal, poolv1.EventHostRelocated, "%s, which asked from %s and was not heard of for %s, asks from %s now: that is no further use",
		f.name, f.config.Spec.Enrolled().Address, silence, f.request.Address)
	return nil
}

// report puts an event on the enrollment, on the pool and on the host's record, where those exist. Each names what it
// is about as the related object, or the recorder would count two hosts as one that came twice.
func (r *Reconciler) report(s *scope, name string, config *bootstrapv1.PoolbootConfig, kind, reason, note string, args ...any) {
	note = fmt.Sprintf(note, args...)
	about := &corev1.ObjectReference{
		APIVersion: bootstrapv1.GroupVersion.String(), Kind: "PoolbootConfig", Namespace: s.enrollment.Namespace, Name: name,
	}
	r.Recorder.Eventf(s.enrollment, about, kind, reason, action, "%s", note)
	if s.place.Pool != nil {
		r.Recorder.Eventf(s.place.Pool, about, kind, reason, action, "%s", note)
	}
	if config != nil {
		r.Recorder.Eventf(config, s.enrollment, kind, reason, action, "%s", note)
	}
}
