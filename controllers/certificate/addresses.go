package certificate

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/enroll"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// addresses are what is known of a host's addresses from others than the host itself.
type addresses struct {
	// known are those that it is known to have.
	known []netip.Addr
	// taken says of known addresses who else has them. One that a person stated for the host is never taken.
	taken map[netip.Addr]string
	// cure says what a person does about an address that is not known, or taken.
	cure string
}

// gatherAddresses reads what is known of the addresses of a config's host. w reads the Nodes of its cluster.
func (r *Reconciler) gatherAddresses(ctx context.Context, w client.Reader, config *bootstrapv1.PoolbootConfig) (addresses, error) {
	machine, err := util.GetOwnerMachine(ctx, r.Client, config.ObjectMeta)
	if err != nil {
		return addresses{cure: "wait for its Machine"}, client.IgnoreNotFound(err)
	}
	found, err := host.ForConfig(ctx, r.Client, config, machine)
	if notReady := (*host.NotReadyError)(nil); errors.As(err, &notReady) {
		return addresses{cure: "cure this: " + notReady.Why}, nil
	}
	if err != nil {
		return addresses{}, err
	}
	if found == nil {
		return r.addressesOfRecord(ctx, w, config)
	}
	a := addresses{taken: map[netip.Addr]string{},
		cure: fmt.Sprintf("add that to the annotation %s of BareMetalHost %s", poolv1.HostAddressesAnnotation, found.Name)}
	if a.known, err = host.Addresses(ctx, r.Client, found.Object); err != nil {
		return a, err
	}
	if err := r.takenByHosts(ctx, &a, config.Namespace, found.Name); err != nil {
		return a, err
	}
	if err := takenByNodes(ctx, &a, w, config.Status.NodeRef.Name, isControlPlane); err != nil {
		return a, err
	}
	a.untake(host.StatedAddresses(found.Object.Annotations))
	return a, nil
}

// addressesOfRecord are those of a host that no BareMetalHost tells of: what a person stated on its record and, if it
// enrolled, the address that it enrolled from. The config server writes that one, so it counts only in the ranges that
// the enrollment names, and only if nobody else is known to have it.
func (r *Reconciler) addressesOfRecord(ctx context.Context, w client.Reader, config *bootstrapv1.PoolbootConfig) (addresses, error) {
	stated := host.StatedAddresses(config.Annotations)
	a := addresses{known: stated, taken: map[netip.Addr]string{},
		cure: fmt.Sprintf("add that to the annotation %s of PoolbootConfig %s", poolv1.HostAddressesAnnotation, config.Name)}
	from, enrolled := enrolledFrom(config)
	if !enrolled {
		return a, nil
	}
	ranges, err := r.rangesOf(ctx, config)
	if err != nil {
		return a, err
	}
	if !enroll.InRanges(ranges, from) {
		a.cure = fmt.Sprintf("add its range to spec.addressRanges of Enrollment %s, or %s", config.Spec.EnrollmentName(), a.cure)
		return a, nil
	}
	a.known = append(a.known, from)
	for _, take := range []func() error{
		func() error { return r.takenByHosts(ctx, &a, config.Namespace, "") },
		func() error { return r.takenByRecords(ctx, &a, config) },
		func() error {
			return takenByNodes(ctx, &a, w, config.Status.NodeRef.Name, func(*corev1.Node) bool { return true })
		},
	} {
		if err := take(); err != nil {
			return a, err
		}
	}
	a.untake(stated)
	return a, nil
}

// enrolledFrom returns the address that a host enrolled from; false when it did not enroll.
func enrolledFrom(config *bootstrapv1.PoolbootConfig) (netip.Addr, bool) {
	host := config.Spec.Enrolled()
	if host == nil {
		return netip.Addr{}, false
	}
	from, err := netip.ParseAddr(host.Address)
	return from.Unmap().WithZone(""), err == nil
}

// rangesOf returns the address ranges by which a host enrolled: those of the Enrollment as it is now or, if that is
// gone, as it was.
func (r *Reconciler) rangesOf(ctx context.Context, config *bootstrapv1.PoolbootConfig) ([]string, error) {
	enrollment := &poolv1.Enrollment{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: config.Namespace, Name: config.Spec.EnrollmentName()}, enrollment)
	if apierrors.IsNotFound(err) {
		return config.Spec.Enrolled().AddressRanges, nil
	}
	return enrollment.Spec.AddressRanges, err
}

// take notes who else has one of the addresses.
func (a *addresses) take(address netip.Addr, by string) {
	if slices.Contains(a.known, address) {
		a.taken[address] = by
	}
}

// untake gives the host back what a person stated.
func (a *addresses) untake(stated []netip.Addr) {
	for _, address := range stated {
		delete(a.taken, address)
	}
}

// takenByHosts notes which addresses other BareMetalHosts of a namespace have.
func (r *Reconciler) takenByHosts(ctx context.Context, a *addresses, namespace, own string) error {
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
			a.take(address, "BareMetalHost "+hosts.Items[i].Name)
		}
	}
	return nil
}

// takenByRecords notes which addresses other hosts of the cluster enrolled from, or were stated to have.
func (r *Reconciler) takenByRecords(ctx context.Context, a *addresses, config *bootstrapv1.PoolbootConfig) error {
	configs := &bootstrapv1.PoolbootConfigList{}
	if err := r.Client.List(ctx, configs, client.InNamespace(config.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingLabels{clusterv1.ClusterNameLabel: record.ClusterName(config)}); err != nil {
		return err
	}
	for i := range configs.Items {
		if configs.Items[i].Name == config.Name {
			continue
		}
		others := host.StatedAddresses(configs.Items[i].Annotations)
		if from, enrolled := enrolledFrom(&configs.Items[i]); enrolled {
			others = append(others, from)
		}
		for _, address := range others {
			a.take(address, "PoolbootConfig "+configs.Items[i].Name)
		}
	}
	return nil
}

// takenByNodes notes which addresses other Nodes report. Root on a host has its Node report anything, so where the
// host's own addresses are facts only those of the control plane count.
func takenByNodes(ctx context.Context, a *addresses, w client.Reader, own string, counts func(*corev1.Node) bool) error {
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
				a.take(address.Unmap().WithZone(""), "Node "+node.Name)
			}
		}
	}
	return nil
}

// isControlPlane says whether a Node is one of the control plane, by labels that no kubelet may set.
func isControlPlane(node *corev1.Node) bool {
	return metav1.HasLabel(node.ObjectMeta, poolv1.NodeRoleLabelPrefix+"control-plane") || metav1.HasLabel(node.ObjectMeta, poolv1.NodeRoleLabelPrefix+"master")
}

// serviceAddresses are those of the API server's own Service.
func serviceAddresses(ctx context.Context, live client.Reader) ([]netip.Addr, error) {
	service := &corev1.Service{}
	if err := live.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}, service); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	var found []netip.Addr
	for _, text := range append(service.Spec.ClusterIPs, service.Spec.ClusterIP) {
		if address, err := netip.ParseAddr(text); err == nil {
			found = append(found, address.Unmap())
		}
	}
	return found, nil
}
