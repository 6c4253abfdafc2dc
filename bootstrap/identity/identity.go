// Package identity knows which names and addresses stand for something else than a Node: a cluster's API server, its
// Services, and the machine that a program runs on. A Node's name is an identity: its kubelet gets certificates for it,
// signed by the authority that every client of the cluster trusts. So a host that may choose its name must not get one
// of these. It is pure: no client, no I/O.
package identity

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// defaultServiceDomain is the DNS domain of a cluster's Services unless the Cluster names another.
const defaultServiceDomain = "cluster.local"

// Cluster is what a cluster is known by. The zero value knows the names and addresses that no Node of any cluster may
// have.
type Cluster struct {
	// Endpoints are the hosts, names or addresses, at which clients reach the API server.
	Endpoints []string
	// ServiceDomain is the DNS domain of the Services; empty means cluster.local.
	ServiceDomain string
	// ServiceRanges are the address ranges of the Services.
	ServiceRanges []netip.Prefix
	// ServiceAddresses are addresses of the API server's own Service.
	ServiceAddresses []netip.Addr
}

// Of returns what a Cluster object says. apiServers are further URLs of its API server, such as that of a kubeconfig.
func Of(cluster *clusterv1.Cluster, apiServers ...string) Cluster {
	c := Cluster{Endpoints: []string{cluster.Spec.ControlPlaneEndpoint.Host}, ServiceDomain: cluster.Spec.ClusterNetwork.ServiceDomain}
	for _, server := range apiServers {
		if u, err := url.Parse(server); err == nil {
			c.Endpoints = append(c.Endpoints, u.Hostname())
		}
	}
	for _, block := range cluster.Spec.ClusterNetwork.Services.CIDRBlocks {
		if prefix, err := netip.ParsePrefix(block); err == nil {
			c.ServiceRanges = append(c.ServiceRanges, prefix.Masked())
		}
	}
	return c
}

// NameError says why no Node may have a name.
type NameError struct {
	// Name is the name.
	Name string
	// Why says whose it is.
	Why string
}

func (e *NameError) Error() string {
	return fmt.Sprintf("no Node may have the name %q: %s; a certificate for it would impersonate that", e.Name, e.Why)
}

// CheckNodeName refuses a name that stands for something else than a Node, with a *NameError. Names are compared as DNS
// does, without regard to case and to a dot at the end.
func (c Cluster) CheckNodeName(name string) error {
	if why := c.owner(normal(name)); why != "" {
		return &NameError{Name: name, Why: why}
	}
	return nil
}

func (c Cluster) owner(name string) string {
	labels := strings.Split(name, ".")
	first, last := labels[0], labels[len(labels)-1]
	domain := normal(c.ServiceDomain)
	if domain == "" {
		domain = defaultServiceDomain
	}
	switch {
	case slices.ContainsFunc(c.Endpoints, func(endpoint string) bool { return endpoint != "" && sameHost(endpoint, name) }):
		return "it is the host of the cluster's control plane endpoint"
	case first == "localhost" || last == "localhost":
		return "it means the machine that a program runs on"
	case first == "kubernetes":
		return "it is the API server's Service"
	case slices.Contains(labels[1:], "svc"), len(labels) > 1 && (last == "default" || last == "kube-system"):
		return "it is the form of a Service's name"
	case within(name, domain), within(name, defaultServiceDomain):
		return fmt.Sprintf("it is in the DNS domain %s of the cluster's Services and Pods", domain)
	case strings.Contains(name, "*"):
		return "it is a wildcard"
	}
	if address, ok := addressForm(name); ok {
		return fmt.Sprintf("programs take it for the IP address %s", address)
	}
	return ""
}

// CheckPattern refuses a pattern of names, in the syntax of path.Match, all of whose names are refused as far as that
// can be told from the pattern's fixed parts. A wider one is fine: CheckNodeName holds for each name.
func (c Cluster) CheckPattern(pattern string) error {
	if err := c.CheckNodeName(sample(pattern)); err != nil {
		return fmt.Errorf("every name like %s is refused: %w", pattern, err)
	}
	return nil
}

// sample is a name that has a pattern's fixed parts, with z, which is in no number and no reserved name, in place of
// all others.
func sample(pattern string) string {
	var name strings.Builder
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '*', '?':
			name.WriteByte('z')
		case '[':
			name.WriteByte('z')
			for i++; i < len(pattern) && pattern[i] != ']'; i++ {
				if pattern[i] == '\\' {
					i++
				}
			}
		case '\\':
			if i++; i < len(pattern) {
				name.WriteByte(pattern[i])
			}
		default:
			name.WriteByte(pattern[i])
		}
	}
	return name.String()
}

// CheckAddress says whose an address is that no Node's certificate may hold; "" when it may be a Node's.
func (c Cluster) CheckAddress(address netip.Addr) string {
	address = address.Unmap().WithZone("")
	switch {
	case !address.IsValid():
		return "it is not an IP address"
	case address.IsUnspecified(), address.IsLoopback():
		return "it means the machine that a program runs on"
	case address.IsLinkLocalUnicast():
		return "it is link-local, and every network has it"
	case address.IsMulticast(), address == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "it is a multicast or broadcast address"
	case slices.ContainsFunc(c.Endpoints, func(endpoint string) bool { return sameHost(endpoint, address.String()) }):
		return "it is the cluster's control plane endpoint"
	case slices.Contains(c.ServiceAddresses, address):
		return "it is the address of Service default/kubernetes, the API server's"
	}
	for _, prefix := range c.ServiceRanges {
		if prefix.Contains(address) {
			return fmt.Sprintf("it is in the range %s of the cluster's Services", prefix)
		}
	}
	return ""
}

// normal is a name as DNS compares it.
func normal(name string) string {
	return strings.TrimSuffix(strings.ToLower(strings.TrimSpace(name)), ".")
}

func within(name, domain string) bool {
	return name == domain || strings.HasSuffix(name, ".pod."+domain) || domain == defaultServiceDomain && strings.HasSuffix(name, "."+domain)
}

// sameHost compares two hosts, each a name or an address in any of its forms.
func sameHost(a, b string) bool {
	a, b = strings.Trim(normal(a), "[]"), strings.Trim(normal(b), "[]")
	if addressA, isA := addressForm(a); isA {
		addressB, isB := addressForm(b)
		return isB && addressA == addressB
	}
	return a == b
}

// addressForm returns the IP address that programs take a name for: one that is written as usual or, as C libraries and
// URLs read IPv4 addresses, in one to four decimal, octal or hexadecimal numbers. A single small number is a name: it
// would be an address of 0.0.0.0/8, which no host has, and servers are named by inventory numbers.
func addressForm(name string) (netip.Addr, bool) {
	if address, err := netip.ParseAddr(name); err == nil {
		return address.Unmap().WithZone(""), true
	}
	parts := strings.Split(name, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var value uint64
	for i, part := range parts {
		number, err := strconv.ParseUint(part, 0, 32)
		if err != nil || strings.ContainsAny(part, "_+") || strings.HasPrefix(part, "0b") || strings.HasPrefix(part, "0o") {
			return netip.Addr{}, false
		}
		bits := 8
		if i == len(parts)-1 { // the last number fills what is left
			bits = 8 * (4 - i)
		}
		if number >= 1<<bits {
			return netip.Addr{}, false
		}
		value = value<<bits | number
	}
	address := netip.AddrFrom4([4]byte{byte(value >> 24), byte(value >> 16), byte(value >> 8), byte(value)})
	if len(parts) == 1 && value != 0 && value < 1<<24 {
		return netip.Addr{}, false
	}
	return address, true
}
