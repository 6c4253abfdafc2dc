package metal3

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	ipamv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/ipam/v1alpha1"
)

// poolReconciler simulates Metal3's ip-address-manager: it gives IPClaims addresses of their IPPools. It has one worker
// and reads from the API server, therefore no address is given twice.
type poolReconciler struct {
	client.Client
	live          client.Reader
	retryInterval time.Duration
}

func (r *poolReconciler) setUp(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&ipamv1.IPPool{}).
		Watches(&ipamv1.IPClaim{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []ctrl.Request {
			return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: o.(*ipamv1.IPClaim).Spec.Pool.Name}}}
		})).
		Complete(r)
}

func (r *poolReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	pool := &ipamv1.IPPool{}
	if err := r.live.Get(ctx, request.NamespacedName, pool); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if pool.Spec.ClusterName != nil {
		cluster := &clusterv1.Cluster{}
		if err := r.Get(ctx, client.ObjectKey{Namespace: pool.Namespace, Name: *pool.Spec.ClusterName}, cluster); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		before := pool.DeepCopy()
		if err := controllerutil.SetOwnerReference(cluster, pool, r.Scheme()); err != nil {
			return ctrl.Result{}, err
		}
		if err := r.Patch(ctx, pool, client.MergeFrom(before)); err != nil {
			return ctrl.Result{}, err
		}
		if annotations.IsPaused(cluster, pool) {
			return ctrl.Result{RequeueAfter: r.retryInterval}, nil
		}
	}
	claims, addresses := &ipamv1.IPClaimList{}, &ipamv1.IPAddressList{}
	for _, list := range []client.ObjectList{claims, addresses} {
		if err := r.live.List(ctx, list, client.InNamespace(pool.Namespace)); err != nil {
			return ctrl.Result{}, err
		}
	}
	addresses.Items = slices.DeleteFunc(addresses.Items, func(a ipamv1.IPAddress) bool { return a.Spec.Pool.Name != pool.Name })
	for i := range claims.Items {
		claim := &claims.Items[i]
		if claim.Spec.Pool.Name != pool.Name {
			continue
		}
		at := slices.IndexFunc(addresses.Items, func(a ipamv1.IPAddress) bool { return a.Spec.Claim.Name == claim.Name })
		var err error
		if !claim.DeletionTimestamp.IsZero() {
			err = r.release(ctx, claim, addresses, at)
		} else if claim.Status.Address == nil && claim.Status.ErrorMessage == nil { // an error is final
			err = r.answer(ctx, pool, claim, addresses, at)
		}
		if err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, nil
}

// answer gives a claim the address at an index, or the first free one.
func (r *poolReconciler) answer(ctx context.Context, pool *ipamv1.IPPool, claim *ipamv1.IPClaim, addresses *ipamv1.IPAddressList, at int) error {
	before := claim.DeepCopy()
	controllerutil.AddFinalizer(claim, ipamv1.IPClaimFinalizer)
	if err := r.Patch(ctx, claim, client.MergeFrom(before)); err != nil {
		return err
	}
	before = claim.DeepCopy()
	if at < 0 {
		free := firstFree(pool, addresses.Items)
		if free == "" {
			claim.Status.ErrorMessage = ptr.To("Exhausted IP Pools")
			return r.Status().Patch(ctx, claim, client.MergeFrom(before))
		}
		name := pool.Spec.NamePrefix + "-" + strings.NewReplacer(".", "-", ":", "-").Replace(free)
		address := ipamv1.IPAddress{
			ObjectMeta: metav1.ObjectMeta{Namespace: pool.Namespace, Name: name, Labels: claim.Labels, Finalizers: []string{ipamv1.IPAddressFinalizer}},
			Spec: ipamv1.IPAddressSpec{
				Claim: corev1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name}, Pool: corev1.ObjectReference{Namespace: pool.Namespace, Name: pool.Name},
				Address: free, Prefix: pool.Spec.Prefix, Gateway: pool.Spec.Gateway,
			},
		}
		for _, owner := range []client.Object{pool, claim} {
			if err := controllerutil.SetOwnerReference(owner, &address, r.Scheme()); err != nil {
				return err
			}
		}
		if err := r.Create(ctx, &address); err != nil {
			return err
		}
		at, addresses.Items = len(addresses.Items), append(addresses.Items, address)
	}
	claim.Status.Address = &corev1.ObjectReference{Namespace: claim.Namespace, Name: addresses.Items[at].Name}
	return r.Status().Patch(ctx, claim, client.MergeFrom(before))
}

// release deletes the address at an index of a deleted claim, unless the claim is still in use.
func (r *poolReconciler) release(ctx context.Context, claim *ipamv1.IPClaim, addresses *ipamv1.IPAddressList, at int) error {
	if !slices.Equal(claim.Finalizers, []string{ipamv1.IPClaimFinalizer}) {
		return nil
	}
	if at >= 0 {
		if err := deleteWithoutFinalizer(ctx, r.Client, &addresses.Items[at], ipamv1.IPAddressFinalizer); err != nil {
			return err
		}
		addresses.Items = slices.Delete(addresses.Items, at, at+1)
	}
	return deleteWithoutFinalizer(ctx, r.Client, claim, ipamv1.IPClaimFinalizer)
}

// firstFree returns the first address of a pool that is not given to a claim, or "".
func firstFree(pool *ipamv1.IPPool, given []ipamv1.IPAddress) string {
	for _, part := range pool.Spec.Pools {
		end, _ := netip.ParseAddr(part.End)
		for address, err := netip.ParseAddr(part.Start); err == nil && address.IsValid() && address.Compare(end) <= 0; address = address.Next() {
			if !slices.ContainsFunc(given, func(a ipamv1.IPAddress) bool { return a.Spec.Address == address.String() }) {
				return address.String()
			}
		}
	}
	return ""
}

// deleteWithoutFinalizer removes a finalizer of an object, and deletes the object.
func deleteWithoutFinalizer(ctx context.Context, c client.Client, o client.Object, finalizer string) error {
	before := o.DeepCopyObject().(client.Object)
	if controllerutil.RemoveFinalizer(o, finalizer) {
		if err := c.Patch(ctx, o, client.MergeFrom(before)); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	return client.IgnoreNotFound(c.Delete(ctx, o))
}
