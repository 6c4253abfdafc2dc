package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/identity"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
)

// FuzzJudge holds the promise about the approver, for any request whatever: what is approved is the certificate of one
// Node's kubelet, for one signer, with that signer's usages, and for no name and no address but the Node's own. The
// conditions are written down here once more, and not taken from the code that they are about.
func FuzzJudge(f *testing.F) {
	const (
		client, serving = certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeletServingSignerName
		token, kubelet  = "system:bootstrap:" + tokenID, "system:node:" + name
		tokenGroups     = "system:bootstrappers,system:bootstrappers:poolboot,system:authenticated"
		nodeGroups      = "system:nodes,system:authenticated"
		clientUsages    = "digital signature,key encipherment,client auth"
		serverUsages    = "digital signature,server auth"
	)
	// signer, user, groups, usages, common name, organizations, DNS names, addresses, e-mail, URI, the Node's name, its
	// known addresses, and flags
	f.Add(client, token, tokenGroups, clientUsages, kubelet, "system:nodes", "", "", "", "", name, "", uint8(0))
	f.Add(client, token, tokenGroups, "digital signature,client auth", kubelet, "system:nodes", "", "", "", "", name, "", uint8(0))
	f.Add(serving, kubelet, nodeGroups, serverUsages, kubelet, "system:nodes", name, "192.0.2.7,2001:db8::7", "", "", name, "192.0.2.7,2001:db8::7", uint8(0))
	for _, signer := range []string{certificatesv1.KubeAPIServerClientSignerName, "kubernetes.io/legacy-unknown", "example.com/any", "", client + " ", strings.ToUpper(client)} {
		f.Add(signer, token, tokenGroups, clientUsages, kubelet, "system:nodes", "", "", "", "", name, "", uint8(0))
		f.Add(signer, kubelet, nodeGroups, serverUsages, kubelet, "system:nodes", name, "", "", "", name, "", uint8(0))
	}
	f.Add(serving, token, tokenGroups, serverUsages, kubelet, "system:nodes", name, "", "", "", name, "", uint8(0)) // a credential asks to serve
	f.Add(client, kubelet, nodeGroups, clientUsages, kubelet, "system:nodes", "", "", "", "", name, "", uint8(0))   // a kubelet renews by itself
	f.Add(client, token, "system:authenticated", clientUsages, kubelet, "system:nodes", "", "", "", "", name, "", uint8(0))
	f.Add(client, token, tokenGroups, clientUsages+",server auth", kubelet, "system:nodes", "", "", "", "", name, "", uint8(0))
	f.Add(client, token, tokenGroups, "any", kubelet, "system:nodes", "", "", "", "", name, "", uint8(0))
	f.Add(client, token, tokenGroups, clientUsages, kubelet, "system:nodes,system:masters", "", "", "", "", name, "", uint8(0))
	f.Add(client, token, tokenGroups, clientUsages, "system:node:other", "system:nodes", "", "", "", "", name, "", uint8(0))
	f.Add(client, token, tokenGroups, clientUsages, "system:node:kubernetes.default.svc", "system:nodes", "", "", "", "", "kubernetes.default.svc", "", uint8(0))
	f.Add(client, token, tokenGroups, clientUsages, kubelet, "system:nodes", "kubernetes", "", "", "", name, "", uint8(0))
	for _, reserved := range []string{"kubernetes", "kubernetes.default.svc", "localhost", "api.example.com", "API.example.com", "192.0.2.7", "*.example.com"} {
		f.Add(serving, "system:node:"+reserved, nodeGroups, serverUsages, "system:node:"+reserved, "system:nodes", reserved, "", "", "", reserved, "", uint8(0))
		f.Add(serving, kubelet, nodeGroups, serverUsages, kubelet, "system:nodes", name+","+reserved, "", "", "", name, "", uint8(0))
	}
	for _, reserved := range []string{"127.0.0.1", "::1", "0.0.0.0", "198.18.0.1", "198.51.100.1", "203.0.113.1", "::ffff:203.0.113.1", "fe80::1", "224.0.0.1"} {
		f.Add(serving, kubelet, nodeGroups, serverUsages, kubelet, "system:nodes", name, reserved, "", "", name, reserved, uint8(0))
	}
	f.Add(serving, kubelet, nodeGroups, serverUsages, kubelet, "system:nodes", name, "192.0.2.8", "", "", name, "192.0.2.7", uint8(0))
	f.Add(serving, kubelet, nodeGroups, serverUsages, kubelet, "system:nodes", name, "192.0.2.7", "a@example.com", "", name, "192.0.2.7", uint8(0))
	f.Add(serving, kubelet, nodeGroups, serverUsages, kubelet, "system:nodes", name, "192.0.2.7", "", "spiffe://x/y", name, "192.0.2.7", uint8(0))
	for what := range uint8(64) {
		f.Add(client, token, tokenGroups, clientUsages, kubelet, "system:nodes", "", "", "", "", name, "", what)
		f.Add(serving, kubelet, nodeGroups, serverUsages, kubelet, "system:nodes", name, "192.0.2.7", "", "", name, "192.0.2.7", what)
	}

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, signer, user, groups, usages, commonName, organizations, dnsNames, ips, mail, uri, nodeName, known string, what uint8) {
		template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: commonName, Organization: split(organizations)}, DNSNames: split(dnsNames), EmailAddresses: split(mail)}
		for _, ip := range split(ips) {
			if parsed := net.ParseIP(ip); parsed != nil {
				template.IPAddresses = append(template.IPAddresses, parsed)
			}
		}
		if parsed, err := url.Parse(uri); err == nil && uri != "" {
			template.URIs = []*url.URL{parsed}
		}
		der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
		if err != nil {
			t.Skip("no client can ask for that")
		}
		cluster := identity.Of(newCluster(), "https://203.0.113.1:6443")
		cluster.ServiceAddresses = []netip.Addr{netip.MustParseAddr("198.51.100.1")}
		in := facts{config: newConfig(), node: newNode(), pools: pools(), now: time.Now(), cluster: cluster,
			request: &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
				SignerName: signer, Username: user, Groups: split(groups),
				Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			}}}
		for _, usage := range split(usages) {
			in.request.Spec.Usages = append(in.request.Spec.Usages, certificatesv1.KeyUsage(usage))
		}
		for _, address := range split(known) {
			if parsed, err := netip.ParseAddr(address); err == nil {
				in.addresses.known = append(in.addresses.known, parsed)
			}
		}
		in.config.Status.NodeRef.Name, in.node.Name = nodeName, nodeName
		is := func(bit uint8) bool { return what&(1<<bit) != 0 }
		if is(0) {
			in.node = nil
		}
		if is(1) {
			in.config.Status.NodeRef.UID = "of an earlier one"
		}
		if is(2) && in.node != nil {
			in.node.Labels = nil
		}
		if is(3) {
			in.config.Status.Boot.CredentialID = ""
		}
		if is(4) {
			in.request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue}}
		}
		if is(5) { // another key has the certificate, and a kubelet works with it
			in.config.Status.Boot.Certificate = bootstrapv1.GrantedCertificate{CredentialID: tokenID, PublicKeySHA256: "other", GrantedTime: metav1.NewTime(in.now)}
			if in.node != nil {
				in.node.Status.Conditions = ready(corev1.ConditionTrue, "KubeletReady")
			}
		}

		got, why := judge(in)
		if why == "" {
			t.Error("no reason is given")
		}
		if got != approve {
			return
		}
		wanted, err := x509.ParseCertificateRequest(der)
		if err != nil {
			t.Fatalf("what no one can read is approved: %v", err)
		}
		must := func(holds bool, promise string) {
			if !holds {
				t.Errorf("approved, and not %s: signer %q, user %q, groups %q, usages %q, subject %s, DNS names %q, addresses %v, Node %q, known %q, %b",
					promise, signer, user, groups, usages, wanted.Subject, wanted.DNSNames, wanted.IPAddresses, nodeName, known, what)
			}
		}
		must(!is(0) && !is(1), "for a Node that exists and is the recorded one")
		must(!is(4), "undecided")
		must(wanted.Subject.CommonName == "system:node:"+nodeName && nodeName != "", "for the user of the Node")
		must(slices.Equal(wanted.Subject.Organization, []string{"system:nodes"}), "for the group of Nodes alone")
		must(len(wanted.EmailAddresses)+len(wanted.URIs) == 0, "without e-mail addresses and URIs")
		for _, reserved := range []string{"kubernetes", "localhost", "api.example.com"} {
			must(!strings.EqualFold(nodeName, reserved), "for a name that a Node may have")
		}
		must(!strings.Contains(strings.ToLower(nodeName)+".", ".svc.") && !strings.HasPrefix(strings.ToLower(nodeName), "kubernetes."), "for a name that is no Service's")
		must(net.ParseIP(nodeName) == nil && !strings.Contains(nodeName, "*"), "for a name that is no address and no wildcard")
		has := func(usage certificatesv1.KeyUsage) bool { return slices.Contains(in.request.Spec.Usages, usage) }
		for _, usage := range in.request.Spec.Usages {
			must(slices.Contains([]string{"digital signature", "key encipherment", "client auth", "server auth"}, string(usage)), "for usages of kubelets")
		}
		switch signer {
		case client:
			must(user == token && slices.Contains(in.request.Spec.Groups, join.Group), "made with the credential of the host")
			must(!is(2) && !is(3) && !is(5), "for a Node in its pool, with a credential on record that nobody uses")
			must(len(wanted.DNSNames)+len(wanted.IPAddresses) == 0, "without alternative names")
			must(has("client auth") && !has("server auth"), "for a client")
		case serving:
			must(user == "system:node:"+nodeName && slices.Contains(in.request.Spec.Groups, "system:nodes"), "made by the Node's own kubelet")
			must(has("server auth") && !has("client auth"), "for a server")
			for _, dns := range wanted.DNSNames {
				must(dns == nodeName, "for the Node's name alone")
			}
			for _, ip := range wanted.IPAddresses {
				must(slices.ContainsFunc(split(known), func(k string) bool { return net.ParseIP(k).Equal(ip) }), "for addresses that the host is known to have")
				must(ip.IsGlobalUnicast(), "for an address that is one host's")
				for _, range4 := range []string{"198.18.0.0/15", "198.51.100.1/32", "203.0.113.1/32"} {
					_, block, _ := net.ParseCIDR(range4)
					must(!block.Contains(ip), "for an address that is not the API server's or a Service's")
				}
			}
		default:
			must(false, "for a signer of kubelets")
		}
	})
}

// split reads a list of texts, separated by commas.
func split(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}
