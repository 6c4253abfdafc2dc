package metal3

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	ipamv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/ipam/v1alpha1"
	infrav1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/v1beta2"
)

// dataSecretType is the type of the Secrets of Metal3Data.
const dataSecretType corev1.SecretType = "infrastructure.cluster.x-k8s.io/secret"

// dataReconciler answers Metal3DataClaims with Metal3Data, whose Secrets it renders (metal3datatemplate_manager.go and
// metal3data_manager.go of the provider). It has one worker and reads from the API server, therefore no index is given
// twice.
type dataReconciler struct {
	client.Client
	live          client.Reader
	retryInterval time.Duration
}

func (r *dataReconciler) setUp(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&infrav1.Metal3DataClaim{}).
		Owns(&infrav1.Metal3Data{}).
		Watches(&ipamv1.IPClaim{}, handler.EnqueueRequestsFromMapFunc(r.dataClaimOf)).
		Complete(r)
}

// dataClaimOf maps the IPClaim of a Metal3Data to its Metal3DataClaim.
func (r *dataReconciler) dataClaimOf(ctx context.Context, o client.Object) []ctrl.Request {
	data := &infrav1.Metal3Data{}
	owner := metav1.GetControllerOf(o)
	if owner == nil || owner.Kind != "Metal3Data" || r.Get(ctx, client.ObjectKey{Namespace: o.GetNamespace(), Name: owner.Name}, data) != nil {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: data.Namespace, Name: data.Spec.Claim.Name}}}
}

func (r *dataReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	claim := &infrav1.Metal3DataClaim{}
	if err := r.live.Get(ctx, request.NamespacedName, claim); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	all := &infrav1.Metal3DataList{}
	if err := r.live.List(ctx, all, client.InNamespace(claim.Namespace)); err != nil {
		return ctrl.Result{}, err
	}
	at := slices.IndexFunc(all.Items, func(d infrav1.Metal3Data) bool { return d.Spec.Claim.Name == claim.Name })
	if !claim.DeletionTimestamp.IsZero() {
		if at >= 0 {
			if err := r.delete(ctx, &all.Items[at]); err != nil {
				return ctrl.Result{}, err
			}
		}
		return ctrl.Result{}, deleteWithoutFinalizer(ctx, r.Client, claim, infrav1.DataClaimFinalizer)
	}
	cluster, err := util.GetClusterFromMetadata(ctx, r.Client, claim.ObjectMeta)
	if err != nil {
		return ctrl.Result{}, err
	}
	if annotations.IsPaused(cluster, claim) {
		return ctrl.Result{RequeueAfter: r.retryInterval}, nil
	}
	var data *infrav1.Metal3Data
	if at >= 0 {
		data = &all.Items[at]
	} else if data, err = r.create(ctx, claim, all.Items); err != nil {
		return ctrl.Result{}, err
	}
	before := claim.DeepCopy()
	controllerutil.AddFinalizer(claim, infrav1.DataClaimFinalizer)
	if err := r.Patch(ctx, claim, client.MergeFrom(before)); err != nil {
		return ctrl.Result{}, err
	}
	before = claim.DeepCopy()
	claim.Status.RenderedData = &infrav1.ObjectReference{Namespace: data.Namespace, Name: data.Name}
	if err := r.Status().Patch(ctx, claim, client.MergeFrom(before)); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.render(ctx, cluster, data); errors.Is(err, errRetry) {
		return ctrl.Result{RequeueAfter: r.retryInterval}, nil
	} else if err != nil {
		old := data.DeepCopy()
		data.Status.ErrorMessage = err.Error()
		return ctrl.Result{}, errors.Join(err, r.Status().Patch(ctx, data, client.MergeFrom(old)))
	}
	old := data.DeepCopy()
	data.Status.Ready, data.Status.ErrorMessage = ptr.To(true), ""
	return ctrl.Result{}, r.Status().Patch(ctx, data, client.MergeFrom(old))
}

// create creates the Metal3Data of a claim, with the first free index of the template. The Metal3DataTemplate does not
// own it.
func (r *dataReconciler) create(ctx context.Context, claim *infrav1.Metal3DataClaim, all []infrav1.Metal3Data) (*infrav1.Metal3Data, error) {
	index := int32(0)
	for slices.ContainsFunc(all, func(d infrav1.Metal3Data) bool {
		return d.Spec.Template.Name == claim.Spec.Template.Name && d.Spec.Index == index
	}) {
		index++
	}
	data := &infrav1.Metal3Data{
		ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: fmt.Sprintf("%s-%d", claim.Spec.Template.Name, index), Labels: claim.Labels,
			Finalizers: []string{infrav1.DataFinalizer}},
		Spec: infrav1.Metal3DataSpec{Index: index, Claim: infrav1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name}, Template: claim.Spec.Template},
	}
	if err := controllerutil.SetControllerReference(claim, data, r.Scheme()); err != nil {
		return nil, err
	}
	machine := *metav1.GetControllerOf(claim)
	machine.Controller, machine.BlockOwnerDeletion = nil, nil
	data.OwnerReferences = append(data.OwnerReferences, machine)
	return data, r.Create(ctx, data)
}

// render creates the Secrets of a Metal3Data that its template describes. A Secret that exists is not changed, and
// needs no addresses.
func (r *dataReconciler) render(ctx context.Context, cluster *clusterv1.Cluster, data *infrav1.Metal3Data) error {
	template, machine := &infrav1.Metal3DataTemplate{}, &infrav1.Metal3Machine{}
	if err := r.live.Get(ctx, client.ObjectKey{Namespace: data.Namespace, Name: data.Spec.Template.Name}, template); err != nil {
		return fmt.Errorf("%w: %w", err, errRetry)
	}
	if err := r.live.Get(ctx, client.ObjectKey{Namespace: data.Namespace, Name: data.Spec.Claim.Name}, machine); err != nil {
		return err
	}
	before := data.DeepCopy()
	if template.Spec.MetaData != nil {
		data.Spec.MetaData = &corev1.SecretReference{Namespace: data.Namespace, Name: machine.Name + "-metadata"}
	}
	if template.Spec.NetworkData != nil {
		data.Spec.NetworkData = &corev1.SecretReference{Namespace: data.Namespace, Name: machine.Name + "-networkdata"}
	}
	if err := r.Patch(ctx, data, client.MergeFrom(before)); err != nil {
		return err
	}
	var rendered *renderer
	for key, ref := range map[string]*corev1.SecretReference{"metaData": data.Spec.MetaData, "networkData": data.Spec.NetworkData} {
		if ref == nil {
			continue
		}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name,
			Labels: map[string]string{clusterv1.ClusterNameLabel: cluster.Name}}, Type: dataSecretType}
		if err := r.Get(ctx, client.ObjectKeyFromObject(secret), &corev1.Secret{}); !apierrors.IsNotFound(err) {
			if err != nil {
				return err
			}
			continue
		}
		if rendered == nil {
			var err error
			if rendered, err = r.renderer(ctx, data, template, machine); err != nil {
				return err
			}
		}
		content, err := rendered.data(key)
		if err != nil {
			return err
		}
		secret.Data = map[string][]byte{key: content}
		if err := controllerutil.SetControllerReference(data, secret, r.Scheme()); err != nil {
			return err
		}
		if err := r.Create(ctx, secret); err != nil {
			return err
		}
	}
	return nil
}

// delete releases the addresses of a Metal3Data, and deletes it with its Secrets, which is the task of Kubernetes'
// garbage collector: many control planes of tests have none.
func (r *dataReconciler) delete(ctx context.Context, data *infrav1.Metal3Data) error {
	claims := &ipamv1.IPClaimList{}
	if err := r.live.List(ctx, claims, client.InNamespace(data.Namespace)); err != nil {
		return err
	}
	for i := range claims.Items {
		if metav1.IsControlledBy(&claims.Items[i], data) {
			if err := deleteWithoutFinalizer(ctx, r.Client, &claims.Items[i], infrav1.DataFinalizer); err != nil {
				return err
			}
		}
	}
	for _, ref := range []*corev1.SecretReference{data.Spec.MetaData, data.Spec.NetworkData} {
		if ref != nil {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name}}
			if err := client.IgnoreNotFound(r.Delete(ctx, secret)); err != nil {
				return err
			}
		}
	}
	return deleteWithoutFinalizer(ctx, r.Client, data, infrav1.DataFinalizer)
}
