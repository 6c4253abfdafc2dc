package certificate

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// addresses has the known addresses of a host, from sources other than the host itself.
type addresses struct {
	// known are the known addresses.
	known []netip.Addr
	// usedBy has the other user of known addresses. An address that an administrator set for the host is never in it.
	usedBy map[netip.Addr]string
	// remedy is what to do about an address that is unknown, or that something else uses.
	remedy string
}

// gatherAddresses reads the known addresses of the host of a PoolbootConfig. w reads the Nodes of its cluster.
func (r *Reconciler) gatherAddresses(ctx context.Context, w client.Reader, config *bootstrapv1.PoolbootConfig) (addresses, error) {
	machine, err := util.GetOwnerMachine(ctx, r.Client, config.ObjectMeta)
	if err != nil {
		return addresses{remedy: "wait for its Machine"}, client.IgnoreNotFound(err)
	}
	bmh, err := host.ForConfig(ctx, r.Client, config, machine)
	if notReady := (*host.NotReadyError)(nil); errors.As(err, &notReady) {
		return addresses{remedy: "correct this: " + notReady.Why}, nil
	}
	if err != nil {
		return addresses{}, err
	}
	if bmh == nil {
		return r.addressesWithoutHost(ctx, w, config)
	}
	a := addresses{usedBy: map[netip.Addr]string{},
		remedy: fmt.Sprintf("add it to the annotation %s of BareMetalHost %s", poolv1.HostAddressesAnnotation, bmh.Name)}
	inspected, err := host.Addresses(ctx, r.Client, bmh.Object)
	if err != nil {
		return a, err
	}
	renderer, err := r.rendererOf(ctx, config)
	if err != nil {
		return a, err
	}
	static, err := r.NetworkData.Addresses(ctx, bmh.Object, renderer)
	if err != nil {
		return a, err
	}
	a.known = slices.Concat(inspected, static)
	err = errors.Join(
		r.markUsedByHosts(ctx, &a, config.Namespace, bmh.Name),
		markUsedByNodes(ctx, &a, w, config.Status.NodeRef.Name, isControlPlane),
	)
	a.unmark(host.AnnotatedAddresses(bmh.Object.Annotations))
	return a, err
}

// addressesWithoutHost returns the addresses of a host without a BareMetalHost: those that an administrator set on the
// PoolbootConfig and, if the host enrolled, the address from which it enrolled. The config server records the latter,
// so it counts only if it is in the address ranges of the Enrollment and nothing else is known to use it.
func (r *Reconciler) addressesWithoutHost(ctx context.Context, w client.Reader, config *bootstrapv1.PoolbootConfig) (addresses, error) {
	stated := host.AnnotatedAddresses(config.Annotations)
	a := addresses{known: stated, usedBy: map[netip.Addr]string{},
		remedy: fmt.Sprintf("add it to the annotation %s of PoolbootConfig %s", poolv1.HostAddressesAnnotation, config.Name)}
	address, ok := enrollmentAddress(config)
	if !ok {
		return a, nil
	}
	ranges, err := r.enrollmentRanges(ctx, config)
	if err != nil {
		return a, err
	}
	if !access.InRanges(ranges, address) {
		a.remedy = fmt.Sprintf("add its range to spec.addressRanges of Enrollment %s, or %s", config.Spec.EnrollmentName(), a.remedy)
		return a, nil
	}
	a.known = append(a.known, address)
	err = errors.Join(
		r.markUsedByHosts(ctx, &a, config.Namespace, ""),
		r.markUsedByConfigs(ctx, &a, config),
		markUsedByNodes(ctx, &a, w, config.Status.NodeRef.Name, func(*corev1.Node) bool { return true }),
	)
	a.unmark(stated)
	return a, err
}

// enrollmentAddress returns the address from which a host enrolled. It returns false if it did not enroll.
func enrollmentAddress(config *bootstrapv1.PoolbootConfig) (netip.Addr, bool) {
	if config.Spec.Enrolled() == nil {
		return netip.Addr{}, false
	}
	address, err := netip.ParseAddr(config.Annotations[bootstrapv1.EnrolledFromAnnotation])
	return address.Unmap().WithZone(""), err == nil
}

// enrollmentRanges returns the address ranges of the Enrollment that admitted a host: the current ones or, if the
// Enrollment was deleted, those that the PoolbootConfig recorded.
func (r *Reconciler) enrollmentRanges(ctx context.Context, config *bootstrapv1.PoolbootConfig) ([]string, error) {
	key := client.ObjectKey{Namespace: config.Namespace, Name: config.Spec.EnrollmentName()}
	enrollment, err := workload.GetIfExists[poolv1.Enrollment](ctx, r.Client, key)
	if err != nil || enrollment == nil {
		return config.Spec.Enrolled().AddressRanges, err
	}
	return enrollment.Spec.AddressRanges, nil
}

// markUsed records that something else uses an address, if it is a known address. Of several, it keeps the same one in
// whatever order they are listed: a message with another one would be reported again.
func (a *addresses) markUsed(address netip.Addr, by string) {
	if other, ok := a.usedBy[address]; slices.Contains(a.known, address) && (!ok || by < other) {
		a.usedBy[address] = by
	}
}

// unmark removes the addresses that an administrator set for the host.
func (a *addresses) unmark(stated []netip.Addr) {
	for _, address := range stated {
		delete(a.usedBy, address)
	}
}

// markUsedByHosts marks addresses of other BareMetalHosts in a namespace.
func (r *Reconciler) markUsedByHosts(ctx context.Context, a *addresses, namespace, own string) error {
	if len(a.known) == 0 {
		return nil
	}
	hosts := &bmov1alpha1.BareMetalHostList{}
	if err := r.Client.List(ctx, hosts, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); host.IsAbsent(err) {
		return nil
	} else if err != nil {
		return err
	}
	for i := range hosts.Items {
		if hosts.Items[i].Name == own {
			continue
		}
		others, err := host.Addresses(ctx, r.Client, &hosts.Items[i])
		if err != nil {
			return err
		}
		for _, address := range others {
			a.markUsed(address, "BareMetalHost "+hosts.Items[i].Name)
		}
		if err := r.markUsedByNetworkData(ctx, a, &hosts.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// rendererOf returns the program that configures the network of a host, or "" if it is unknown.
func (r *Reconciler) rendererOf(ctx context.Context, config *bootstrapv1.PoolbootConfig) (poolv1.NetworkRenderer, error) {
	pools, err := workload.PoolsOfCluster(ctx, r.Client, record.ClusterKey(config))
	return pool.NetworkRendererOfRole(config.Status.PoolRole, pools), err
}

// markUsedByNetworkData marks static addresses of another BareMetalHost.
func (r *Reconciler) markUsedByNetworkData(ctx context.Context, a *addresses, bmh *bmov1alpha1.BareMetalHost) error {
	static, err := r.NetworkData.Addresses(ctx, bmh, "")
	if err != nil || !slices.ContainsFunc(static, func(address netip.Addr) bool { return slices.Contains(a.known, address) }) {
		return err
	}
	for _, request := range workload.ConfigOfHost(ctx, r.Client, bmh) {
		config, err := workload.GetIfExists[bootstrapv1.PoolbootConfig](ctx, r.Client, request.NamespacedName)
		if err != nil {
			return err
		}
		if config == nil {
			continue
		}
		if renderer, err := r.rendererOf(ctx, config); err != nil || renderer == poolv1.NetworkRendererNone {
			return err
		}
	}
	for _, address := range static {
		a.markUsed(address, "BareMetalHost "+bmh.Name)
	}
	return nil
}

// markUsedByConfigs marks addresses from which other hosts of the cluster enrolled, or that administrators set for
// them.
func (r *Reconciler) markUsedByConfigs(ctx context.Context, a *addresses, config *bootstrapv1.PoolbootConfig) error {
	configs := &bootstrapv1.PoolbootConfigList{}
	if err := r.Client.List(ctx, configs, client.InNamespace(config.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingLabels{clusterv1.ClusterNameLabel: record.ClusterName(config)}); err != nil {
		return err
	}
	for i := range configs.Items {
		if configs.Items[i].Name == config.Name {
			continue
		}
		others := host.AnnotatedAddresses(configs.Items[i].Annotations)
		if address, ok := enrollmentAddress(&configs.Items[i]); ok {
			others = append(others, address)
		}
		for _, address := range others {
			a.markUsed(address, "PoolbootConfig "+configs.Items[i].Name)
		}
	}
	return nil
}

// markUsedByNodes marks addresses in the status of other Nodes. Root on a host can write any address to the status of
// its Node. So if the host's own addresses are from a trusted source, only Nodes of the control plane count.
func markUsedByNodes(ctx context.Context, a *addresses, w client.Reader, own string, counts func(*corev1.Node) bool) error {
	nodes := &corev1.NodeList{}
	if err := w.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		if node.Name == own || !counts(node) {
			continue
		}
		for _, reported := range node.Status.Addresses {
			if address, err := netip.ParseAddr(reported.Address); err == nil {
				a.markUsed(address.Unmap().WithZone(""), "Node "+node.Name)
			}
		}
	}
	return nil
}

func isControlPlane(node *corev1.Node) bool { return pool.IsControlPlane(node.Labels) }

// serviceAddresses returns the addresses of the Service kubernetes.
func serviceAddresses(ctx context.Context, live client.Reader) ([]netip.Addr, error) {
	service := &corev1.Service{}
	if err := live.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}, service); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	var addresses []netip.Addr
	for _, ip := range append(service.Spec.ClusterIPs, service.Spec.ClusterIP) {
		if address, err := netip.ParseAddr(ip); err == nil {
			addresses = append(addresses, address.Unmap())
		}
	}
	return addresses, nil
}
