package metal3

import (
	"context"
	"fmt"
	"net"
	"slices"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/yaml"

	ipamv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/ipam/v1alpha1"
	infrav1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/v1beta2"
)

// renderer has what the data of a host is rendered from.
type renderer struct {
	template      *infrav1.Metal3DataTemplate
	metal3Machine *infrav1.Metal3Machine
	machine       *clusterv1.Machine
	host          *bmov1alpha1.BareMetalHost
	// addresses are the addresses of the host, by IPPool.
	addresses map[string]ipamv1.IPAddress
}

// renderer gathers what the data of a host is rendered from. It fails until the Metal3Machine has a host and each
// IPPool has answered.
func (r *dataReconciler) renderer(ctx context.Context, data *infrav1.Metal3Data, template *infrav1.Metal3DataTemplate, m *infrav1.Metal3Machine) (*renderer, error) {
	machine, err := util.GetOwnerMachine(ctx, r.Client, m.ObjectMeta)
	if err != nil {
		return nil, err
	}
	host, err := associatedHost(ctx, r.live, m)
	if err != nil {
		return nil, err
	}
	if machine == nil || host == nil {
		return nil, fmt.Errorf("waiting for BareMetalHost to become available: %w", errRetry)
	}
	rendered := &renderer{template: template, metal3Machine: m, machine: machine, host: host, addresses: map[string]ipamv1.IPAddress{}}
	for _, pool := range poolsOf(template) {
		if rendered.addresses[pool], err = r.addressFrom(ctx, data, pool); err != nil {
			return nil, err
		}
	}
	return rendered, nil
}

// poolsOf returns the IPPools of a template.
func poolsOf(template *infrav1.Metal3DataTemplate) (pools []string) {
	if template.Spec.MetaData != nil {
		for _, from := range template.Spec.MetaData.IPAddressesFromPool {
			pools = append(pools, from.Name)
		}
	}
	if template.Spec.NetworkData != nil {
		for _, network := range template.Spec.NetworkData.Networks.IPv4 {
			pools = append(pools, network.IPAddressFromIPPool)
		}
	}
	return pools
}

// addressFrom claims an address of an IPPool for a Metal3Data, and returns it when it is given.
func (r *dataReconciler) addressFrom(ctx context.Context, data *infrav1.Metal3Data, pool string) (ipamv1.IPAddress, error) {
	claim := &ipamv1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: data.Namespace, Name: data.Name + "-" + pool}}
	err := r.live.Get(ctx, client.ObjectKeyFromObject(claim), claim)
	if apierrors.IsNotFound(err) {
		claim.Labels, claim.Finalizers = data.Labels, []string{infrav1.DataFinalizer}
		claim.Spec.Pool = corev1.ObjectReference{Namespace: data.Namespace, Name: pool}
		if err = controllerutil.SetControllerReference(data, claim, r.Scheme()); err == nil {
			err = r.Create(ctx, claim)
		}
	}
	switch {
	case err != nil:
		return ipamv1.IPAddress{}, err
	case claim.Status.ErrorMessage != nil:
		return ipamv1.IPAddress{}, fmt.Errorf("IP allocation for %s failed: %s", pool, *claim.Status.ErrorMessage)
	case claim.Status.Address == nil || !metav1.IsControlledBy(claim, data):
		return ipamv1.IPAddress{}, fmt.Errorf("waiting for an address of IPPool %s: %w", pool, errRetry)
	}
	address := ipamv1.IPAddress{}
	return address, r.live.Get(ctx, client.ObjectKey{Namespace: data.Namespace, Name: claim.Status.Address.Name}, &address)
}

// data renders the value of the key metaData or networkData.
func (r *renderer) data(key string) ([]byte, error) {
	if key == "metaData" {
		return yaml.Marshal(r.metaData())
	}
	data := r.template.Spec.NetworkData
	links, networks, services := []map[string]any{}, []map[string]any{}, []map[string]any{}
	for _, l := range data.Links.Ethernets {
		at := slices.IndexFunc(r.host.Status.HardwareDetails.NIC, func(nic bmov1alpha1.NIC) bool { return nic.Name == l.MACAddress.FromHostInterface })
		if at < 0 {
			return nil, fmt.Errorf("nic name not found %s", l.MACAddress.FromHostInterface)
		}
		links = append(links, map[string]any{"id": l.ID, "type": l.Type, "mtu": 1500, "ethernet_mac_address": r.host.Status.HardwareDetails.NIC[at].MAC})
	}
	for _, server := range data.Services.DNS {
		services = append(services, map[string]any{"type": "dns", "address": server})
	}
	mask := func(length int) string { return net.IP(net.CIDRMask(length, 32)).String() }
	for _, n := range data.Networks.IPv4 {
		address, routes := r.addresses[n.IPAddressFromIPPool], []map[string]any{}
		for _, route := range n.Routes {
			routes = append(routes, map[string]any{"network": route.Network, "netmask": mask(route.Prefix), "services": []any{},
				"gateway": ptr.Deref(r.addresses[route.Gateway.FromIPPool].Spec.Gateway, "")})
		}
		networks = append(networks, map[string]any{"id": n.ID, "link": n.Link, "type": "ipv4", "ip_address": address.Spec.Address,
			"netmask": mask(address.Spec.Prefix), "routes": routes})
	}
	return yaml.Marshal(map[string]any{"links": links, "networks": networks, "services": services})
}

// metaData returns the metadata of the host. Its provider ID has no scheme (renderMetaData of the provider).
func (r *renderer) metaData() map[string]string {
	rendered := map[string]string{"providerid": r.metal3Machine.Namespace + "/" + r.host.Name + "/" + r.metal3Machine.Name}
	names := map[string]string{"machine": r.machine.Name, "metal3machine": r.metal3Machine.Name, "baremetalhost": r.host.Name}
	for _, value := range r.template.Spec.MetaData.ObjectNames {
		rendered[value.Key] = names[value.Object]
	}
	for _, value := range r.template.Spec.MetaData.IPAddressesFromPool {
		rendered[value.Key] = r.addresses[value.Name].Spec.Address
	}
	return rendered
}
