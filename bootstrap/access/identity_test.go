package access_test

import (
	"errors"
	"net/netip"
	"path"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
)

func cluster(endpoint string) access.Cluster {
	c := &clusterv1.Cluster{}
	c.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: endpoint, Port: 6443}
	c.Spec.ClusterNetwork.ServiceDomain = "edge.example.org"
	c.Spec.ClusterNetwork.Services.CIDRBlocks = []string{"10.128.0.1/12", "fd00:10::/112"}
	made := access.ClusterOf(c, "https://lb.example.com:6443", "https://[2001:db8::6]:6443")
	made.ServiceAddresses = []netip.Addr{netip.MustParseAddr("172.20.0.1")}
	return made
}

// reserved are names that no Node can have, with a part of the reason.
var reserved = map[string]string{
	"api.example.com":                       "endpoint",
	"API.Example.COM":                       "endpoint",
	"api.example.com.":                      "endpoint",
	"lb.example.com":                        "endpoint",
	"localhost":                             "the local machine",
	"LocalHost":                             "the local machine",
	"localhost.localdomain":                 "the local machine",
	"edge.localhost":                        "the local machine",
	"kubernetes":                            "the API server's Service",
	"kubernetes.default":                    "the API server's Service",
	"kubernetes.default.svc":                "the API server's Service",
	"kubernetes.default.svc.cluster.local":  "the API server's Service",
	"kubernetes.example.com":                "the API server's Service",
	"vault.vault.svc":                       "the name of a Service",
	"vault.vault.svc.edge.example.org":      "the name of a Service",
	"a.svc":                                 "the name of a Service",
	"vault.default":                         "the name of a Service",
	"kube-dns.kube-system":                  "the name of a Service",
	"edge.example.org":                      "domain",
	"10-0-0-1.default.pod.edge.example.org": "domain",
	"node.cluster.local":                    "domain",
	"*.example.com":                         "wildcard",
	"192.0.2.7":                             "IP address",
	"10.96.0.1":                             "IP address",
	"127.1":                                 "127.0.0.1",
	"0x7f.0.0.1":                            "127.0.0.1",
	"0177.0.0.1":                            "127.0.0.1",
	"2130706433":                            "127.0.0.1",
	"0":                                     "0.0.0.0",
	"::1":                                   "IP address",
}

// free are names that Nodes can have.
var free = []string{
	"edge-7", "infra-x7k2p", "edge-7.site.example.com", "node-1.edge.example.org", "svc", "svc.example.com", "kubernetes-1", "my-kubernetes",
	"default", "localhost-1", "api", "100234", "rack1.u12", "10-0-0-1", "1.2.3.4.example.com", "0b1.1",
}

func TestCheckNodeName(t *testing.T) {
	c := cluster("api.example.com")
	for name, word := range reserved {
		err := c.CheckNodeName(name)
		if refused := (*access.NameError)(nil); !errors.As(err, &refused) || !strings.Contains(err.Error(), word) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v, want a refusal that says %q", name, err, word)
		}
	}
	for _, name := range free {
		if err := c.CheckNodeName(name); err != nil {
			t.Errorf("%s: got %v, want none", name, err)
		}
	}
	if err := cluster("2130706432").CheckNodeName("127.0.0.0"); err == nil || !strings.Contains(err.Error(), "endpoint") {
		t.Errorf("an endpoint in another form: got %v", err)
	}
	if err := (access.Cluster{}).CheckNodeName("edge-7"); err != nil {
		t.Errorf("without a Cluster: got %v", err)
	}
}

func TestCheckPattern(t *testing.T) {
	c := cluster("api.example.com")
	for _, pattern := range []string{"localhost", "kubernetes.*", "*.svc", "*.*.svc.*", "*.localhost", "api.example.com", "10.96.0.1", `kubernete\s`, "*.default"} {
		if err := c.CheckPattern(pattern); err == nil {
			t.Errorf("%s: every name of it is refused, the pattern is not", pattern)
		}
	}
	for _, pattern := range []string{"*", "*.site.example.com", "edge-*", "edge-[0-9]", "kubernetes*", "?ocalhost", `edge-[\]]?`} {
		if err := c.CheckPattern(pattern); err != nil {
			t.Errorf("%s: got %v, want none", pattern, err)
		}
	}
}

func TestCheckAddress(t *testing.T) {
	c := cluster("192.0.2.1")
	for address, word := range map[string]string{
		"192.0.2.1": "endpoint", "::ffff:192.0.2.1": "endpoint", "2001:db8::6": "endpoint", "2001:db8:0::6": "endpoint",
		"10.143.255.255": "10.128.0.0/12", "fd00:10::1": "fd00:10::/112", "172.20.0.1": "default/kubernetes",
		"127.0.0.1": "local machine", "127.8.8.8": "local machine", "::1": "local machine", "0.0.0.0": "local machine", "::": "local machine",
		"169.254.1.1": "link-local", "fe80::1%eth0": "link-local", "224.0.0.1": "multicast", "ff02::1": "multicast", "255.255.255.255": "broadcast",
	} {
		if got := c.CheckAddress(netip.MustParseAddr(address)); !strings.Contains(got, word) {
			t.Errorf("%s: got %q, want %q in it", address, got, word)
		}
	}
	for _, address := range []string{"192.0.2.7", "2001:db8::7", "10.144.0.1"} {
		if got := c.CheckAddress(netip.MustParseAddr(address)); got != "" {
			t.Errorf("%s: got %q, want nothing", address, got)
		}
	}
	if got := c.CheckAddress(netip.Addr{}); got == "" {
		t.Error("no address at all is fine")
	}
}

// FuzzCheckNodeName checks that every spelling that DNS considers equal to a reserved name is refused, and that each
// name of a refused pattern is refused.
func FuzzCheckNodeName(f *testing.F) {
	for name := range reserved {
		f.Add(name, "*")
	}
	for _, name := range free {
		f.Add(name, "edge-*")
	}
	f.Add("kubernetes.x", "kubernetes.*")
	c := cluster("api.example.com")
	f.Fuzz(func(t *testing.T, name, pattern string) {
		refused := c.CheckNodeName(name) != nil
		for _, spelling := range []string{strings.ToUpper(name), name + "."} {
			// Not strings.EqualFold, because DNS ignores case only in ASCII.
			if lower := strings.ToLower(spelling); lower == strings.ToLower(name) && refused != (c.CheckNodeName(spelling) != nil) {
				t.Errorf("%q and %q are told apart", name, spelling)
			}
		}
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			return
		}
		if _, err := netip.ParseAddr(name); err == nil && !refused {
			t.Errorf("the address %q is let through as a name", name)
		}
		for _, label := range strings.Split(name, ".")[1:] {
			if label == "svc" && !refused {
				t.Errorf("%q is let through", name)
			}
		}
		if match, err := path.Match(pattern, name); err == nil && match && c.CheckPattern(pattern) != nil && !refused {
			t.Errorf("the pattern %q is refused, its name %q is not", pattern, name)
		}
	})
}
