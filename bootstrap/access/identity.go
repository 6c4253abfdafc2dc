package access

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

// defaultServiceDomain is the default DNS domain of the Services of a cluster.
const defaultServiceDomain = "cluster.local"

// Cluster has the names and addresses of a cluster. The zero value reserves the names and addresses that no Node of any
// cluster can have.
type Cluster struct {
	// Endpoints are the names or addresses at which clients reach the API server.
	Endpoints []string
	// ServiceDomain is the DNS domain of the Services. The default is cluster.local.
	ServiceDomain string
	// ServiceRanges are the address ranges of the Services.
	ServiceRanges []netip.Prefix
	// ServiceAddresses are the addresses of the Service of the API server.
	ServiceAddresses []netip.Addr
}

// ClusterOf returns the names and addresses in a Cluster object. apiServers are additional URLs of its API server, such
// as the one in a kubeconfig.
func ClusterOf(cluster *clusterv1.Cluster, apiServers ...string) Cluster {
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

// NameError reports why no Node can have a name.
type NameError struct {
	// Name is the refused name.
	Name string
	// Why describes what the name refers to.
	Why string
}

func (e *NameError) Error() string {
	return fmt.Sprintf("no Node can have the name %q: %s; a certificate for this name could be misused for impersonation", e.Name, e.Why)
}

// Reason returns the reason of the condition that reports the error.
func (e *NameError) Reason() string { return bootstrapv1.NodeNameReservedReason }

// CheckNodeName returns a *NameError for a name that refers to something other than a Node. It compares names as DNS
// does: it ignores case and a trailing dot.
func (c Cluster) CheckNodeName(name string) error {
	if why := c.reservedFor(normalize(name)); why != "" {
		return &NameError{Name: name, Why: why}
	}
	return nil
}

func (c Cluster) reservedFor(name string) string {
	labels := strings.Split(name, ".")
	first, last := labels[0], labels[len(labels)-1]
	domain := normalize(c.ServiceDomain)
	if domain == "" {
		domain = defaultServiceDomain
	}
	switch {
	case slices.ContainsFunc(c.Endpoints, func(endpoint string) bool { return endpoint != "" && isSameHost(endpoint, name) }):
		return "it is the host of the cluster's control plane endpoint"
	case first == "localhost" || last == "localhost":
		return "it refers to the local machine"
	case first == "kubernetes":
		return "it is the API server's Service"
	case slices.Contains(labels[1:], "svc"), len(labels) > 1 && (last == "default" || last == "kube-system"):
		return "it has the form of the name of a Service"
	case isInDomain(name, domain), isInDomain(name, defaultServiceDomain):
		return fmt.Sprintf("it is in the DNS domain %s of the cluster's Services and Pods", domain)
	case strings.Contains(name, "*"):
		return "it is a wildcard"
	}
	if address, ok := parseAddress(name); ok {
		return fmt.Sprintf("programs read it as the IP address %s", address)
	}
	return ""
}

// CheckPattern refuses a pattern of names, in the syntax of path.Match, if its fixed parts show that all its names are
// refused. It accepts all other patterns, because CheckNodeName checks each name.
func (c Cluster) CheckPattern(pattern string) error {
	if err := c.CheckNodeName(sampleName(pattern)); err != nil {
		return fmt.Errorf("every name like %s is refused: %w", pattern, err)
	}
	return nil
}

// sampleName returns a name that has the fixed parts of a pattern. Each variable part becomes z, which is in no number
// and in no reserved name.
func sampleName(pattern string) string {
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

// CheckAddress returns why the certificate of a Node cannot have an address. It returns "" if it can.
func (c Cluster) CheckAddress(address netip.Addr) string {
	address = address.Unmap().WithZone("")
	switch {
	case !address.IsValid():
		return "it is not an IP address"
	case address.IsUnspecified(), address.IsLoopback():
		return "it refers to the local machine"
	case address.IsLinkLocalUnicast():
		return "it is a link-local address, which is not unique"
	case address.IsMulticast(), address == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "it is a multicast or broadcast address"
	case slices.ContainsFunc(c.Endpoints, func(endpoint string) bool { return isSameHost(endpoint, address.String()) }):
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

// normalize returns a name in the form in which DNS compares it.
func normalize(name string) string {
	return strings.TrimSuffix(strings.ToLower(strings.TrimSpace(name)), ".")
}

func isInDomain(name, domain string) bool {
	return name == domain || strings.HasSuffix(name, ".pod."+domain) || domain == defaultServiceDomain && strings.HasSuffix(name, "."+domain)
}

// isSameHost reports whether two hosts are the same. Each is a name, or an address in any format.
func isSameHost(a, b string) bool {
	a, b = strings.Trim(normalize(a), "[]"), strings.Trim(normalize(b), "[]")
	if addressA, isA := parseAddress(a); isA {
		addressB, isB := parseAddress(b)
		return isB && addressA == addressB
	}
	return a == b
}

// parseAddress returns the IP address that programs read from a name. The name is an address in the usual format or, as
// C libraries and URLs read IPv4 addresses, one to four decimal, octal or hexadecimal numbers. A single small number is
// a name: as an address it would be in 0.0.0.0/8, which no host has, and some sites use inventory numbers as names of
// servers.
func parseAddress(name string) (netip.Addr, bool) {
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
		if i == len(parts)-1 { // the last number contains all remaining bytes
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
