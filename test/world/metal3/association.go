package metal3

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/v1beta2"
)

// unhealthyAnnotation excludes a host from being chosen.
const unhealthyAnnotation = "capm3.metal3.io/unhealthy"

// associatedHost returns the host in a Metal3Machine's annotation, or nil. Like the real provider, it uses the
// Metal3Machine's namespace and ignores the namespace in the annotation.
func associatedHost(ctx context.Context, live client.Reader, m *infrav1.Metal3Machine) (*bmov1alpha1.BareMetalHost, error) {
	value, ok := m.Annotations[infrav1.HostAnnotation]
	if !ok {
		return nil, nil
	}
	_, name, _ := strings.Cut(value, "/")
	return getHost(ctx, live, m, name)
}

// getHost reads a host in a Metal3Machine's namespace. It returns nil if the host does not exist.
func getHost(ctx context.Context, live client.Reader, m *infrav1.Metal3Machine, name string) (*bmov1alpha1.BareMetalHost, error) {
	host := &bmov1alpha1.BareMetalHost{}
	if err := live.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: name}, host); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return host, nil
}

// chooseHost returns the host whose consumer is the Metal3Machine. Otherwise it returns a host that is kept for its
// MachineDeployment, or waits for it, or returns any available and matching host. It reads candidates from the cache
// and confirms them with the API server.
func (r *machineReconciler) chooseHost(ctx context.Context, s *machineScope) (*bmov1alpha1.BareMetalHost, error) {
	m := s.metal3Machine
	selector := labels.Everything()
	if m.Spec.HostSelector != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(m.Spec.HostSelector); err != nil {
			return nil, fmt.Errorf("Metal3Machine %s, spec.hostSelector: %w", m.Name, err)
		}
	}
	hosts := &bmov1alpha1.BareMetalHostList{}
	if err := r.List(ctx, hosts, client.InNamespace(m.Namespace), client.MatchingLabelsSelector{Selector: selector},
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	var ours, reused, free []string
	for i := range hosts.Items {
		switch host := &hosts.Items[i]; {
		case consumes(m, host):
			ours = append(ours, host.Name)
		case isKept(host) && host.Labels[reuseLabel] == reuseLabelValue(s.machine):
			reused = append(reused, host.Name)
		case s.canTake(host):
			free = append(free, host.Name)
		}
	}
	if len(reused) > 0 {
		free = reused
	}
	rand.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	for _, name := range append(ours, free...) {
		host, err := getHost(ctx, r.live, m, name)
		if err != nil || host != nil && s.canTake(host) {
			return host, err
		}
	}
	return nil, fmt.Errorf("no available host found: %w", errRetry)
}

// canTake reports whether a host belongs to the Metal3Machine or is available to it.
func (s *machineScope) canTake(host *bmov1alpha1.BareMetalHost) bool {
	_, paused := host.Annotations[bmov1alpha1.PausedAnnotation]
	_, unhealthy := host.Annotations[unhealthyAnnotation]
	state := host.Status.Provisioning.State
	usable := host.DeletionTimestamp.IsZero() && host.Status.ErrorMessage == "" &&
		!paused && !unhealthy && (state == bmov1alpha1.StateAvailable || state == bmov1alpha1.StateReady)
	free := host.Spec.ConsumerRef == nil
	if isKept(host) {
		free = host.Labels[reuseLabel] == reuseLabelValue(s.machine)
	}
	return consumes(s.metal3Machine, host) || usable && free
}

// consumes reports whether a host's consumer is a Metal3Machine.
func consumes(m *infrav1.Metal3Machine, host *bmov1alpha1.BareMetalHost) bool {
	ref := host.Spec.ConsumerRef
	if ref == nil || ref.Kind != "Metal3Machine" || ref.Name != m.Name || ref.Namespace != m.Namespace {
		return false
	}
	version, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && version.Group == infrav1.GroupVersion.Group
}

// take sets a host's consumer to the Metal3Machine, keeps the host on, and deploys it if it has no image. With a data
// template, it does not deploy a new host yet, because the data of the host does not exist. It resolves the user data
// of new hosts only (Associate and Update in metal3machine_manager.go of the provider).
func (r *machineReconciler) take(ctx context.Context, s *machineScope, host *bmov1alpha1.BareMetalHost, isNew bool) error {
	if isNew {
		if err := s.resolveUserData(); err != nil {
			return err
		}
	}
	spec := s.metal3Machine.Spec
	if spec.Image.URL == "" && spec.CustomDeploy.Method == "" {
		return fmt.Errorf("Metal3Machine %s has nothing to deploy: set spec.image.url or spec.customDeploy.method", s.metal3Machine.Name)
	}
	before := host.DeepCopy()
	metav1.SetMetaDataLabel(&host.ObjectMeta, clusterv1.ClusterNameLabel, s.cluster.Name)
	delete(host.Labels, reuseLabel)
	host.Spec.ConsumerRef = &corev1.ObjectReference{
		APIVersion: infrav1.GroupVersion.String(), Kind: "Metal3Machine",
		Namespace: s.metal3Machine.Namespace, Name: s.metal3Machine.Name,
	}
	if !isNew || spec.DataTemplate == nil {
		deploy(host, s.metal3Machine)
		host.Spec.Online = true
	}
	hold(host)
	// The optimistic lock fails if another consumer took the host.
	if err := r.Patch(ctx, host, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	metav1.SetMetaDataAnnotation(&s.metal3Machine.ObjectMeta, infrav1.HostAnnotation, host.Namespace+"/"+host.Name)
	return nil
}

// resolveUserData decides once which Secret the host boots with. The default is the name of the bootstrap config.
func (s *machineScope) resolveUserData() error {
	m, bootstrap := s.metal3Machine, s.machine.Spec.Bootstrap
	switch {
	case m.Status.UserData != nil:
	case bootstrap.DataSecretName != nil:
		m.Status.UserData = &corev1.SecretReference{Namespace: m.Namespace, Name: *bootstrap.DataSecretName}
	case m.Spec.UserData != nil:
		if m.Spec.UserData.Namespace != "" && m.Spec.UserData.Namespace != m.Namespace {
			return fmt.Errorf("Metal3Machine %s: spec.userData must be in namespace %s", m.Name, m.Namespace)
		}
		m.Status.UserData = &corev1.SecretReference{Namespace: m.Namespace, Name: m.Spec.UserData.Name}
	default:
		m.Status.UserData = &corev1.SecretReference{Namespace: m.Namespace, Name: bootstrap.ConfigRef.Name}
	}
	return nil
}

// deploy sets the image of a Metal3Machine on a host without one, and its data, as far as the status names it. The host
// keeps metaData and networkData of earlier Metal3Machines otherwise (setHostSpec of the provider).
func deploy(host *bmov1alpha1.BareMetalHost, m *infrav1.Metal3Machine) {
	spec, status := m.Spec, m.Status
	if host.Spec.Image != nil || host.Spec.CustomDeploy != nil || status.UserData == nil {
		return
	}
	host.Spec.UserData = status.UserData
	host.Spec.MetaData, host.Spec.NetworkData = cmp.Or(status.MetaData, host.Spec.MetaData), cmp.Or(status.NetworkData, host.Spec.NetworkData)
	if spec.Image.URL != "" {
		host.Spec.Image = &bmov1alpha1.Image{
			URL:          spec.Image.URL,
			Checksum:     spec.Image.Checksum,
			ChecksumType: bmov1alpha1.ChecksumType(spec.Image.ChecksumType),
		}
		if spec.Image.DiskFormat != "" {
			host.Spec.Image.DiskFormat = &spec.Image.DiskFormat
		}
	}
	if spec.CustomDeploy.Method != "" {
		host.Spec.CustomDeploy = &bmov1alpha1.CustomDeploy{Method: spec.CustomDeploy.Method}
	}
}

// release deprovisions and powers off a host, and frees it after that. It reports whether the host is free. The host
// loses only the user data, metadata and network data that the status of the Metal3Machine still names. A move drops
// the status, and dropData drops what was rendered from a template: the host of the next Metal3Machine can refer to a
// Secret that does not exist (Delete in metal3machine_manager.go of the provider).
func (r *machineReconciler) release(ctx context.Context, s *machineScope, host *bmov1alpha1.BareMetalHost) (bool, error) {
	before := host.DeepCopy()
	released := false
	host.Spec.Image, host.Spec.CustomDeploy = nil, nil
	host.Spec.Online = false
	status := s.metal3Machine.Status
	if status.UserData != nil {
		host.Spec.UserData = nil
	}
	if status.MetaData != nil {
		host.Spec.MetaData = nil
	}
	if status.NetworkData != nil {
		host.Spec.NetworkData = nil
	}
	if isReset := equality.Semantic.DeepEqual(before.Spec, host.Spec); isReset && isDeprovisioned(host.Status.Provisioning.State) {
		// The annotation block-move stays, and blocks the next clusterctl move (Delete in metal3machine_manager.go of
		// the provider).
		host.Spec.ConsumerRef = nil
		if host.Labels[clusterv1.ClusterNameLabel] == s.machine.Spec.ClusterName {
			delete(host.Labels, clusterv1.ClusterNameLabel)
		}
		if err := r.keepForReuse(ctx, s, host); err != nil {
			return false, err
		}
		released = true
	}
	return released, client.IgnoreNotFound(r.Patch(ctx, host, client.MergeFrom(before)))
}

// isDeprovisioned reports whether a host in a state has nothing deployed (Delete in metal3machine_manager.go of the
// provider).
func isDeprovisioned(state bmov1alpha1.ProvisioningState) bool {
	switch state {
	case bmov1alpha1.StateNone, bmov1alpha1.StateUnmanaged, bmov1alpha1.StateRegistering, bmov1alpha1.StateInspecting,
		bmov1alpha1.StateAvailable, bmov1alpha1.StateReady:
		return true
	}
	return false
}

// addresses returns a host's addresses from its inspection.
func addresses(host *bmov1alpha1.BareMetalHost) []clusterv1.MachineAddress {
	if host.Status.HardwareDetails == nil {
		return nil
	}
	var found []clusterv1.MachineAddress
	for _, nic := range host.Status.HardwareDetails.NIC {
		if nic.IP != "" {
			found = append(found, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: nic.IP})
		}
	}
	if name := host.Status.HardwareDetails.Hostname; name != "" {
		found = append(found, clusterv1.MachineAddress{Type: clusterv1.MachineHostName, Address: name},
			clusterv1.MachineAddress{Type: clusterv1.MachineInternalDNS, Address: name})
	}
	return found
}
