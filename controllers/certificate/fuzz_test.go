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
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
)

// FuzzDecide verifies for any request: an approved certificate is for the kubelet of one Node, for one signer, with the
// usages of that signer, and for no name or address except those of the Node. The conditions are repeated here, and do
// not use the code under test.
func FuzzDecide(f *testing.F) {
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
	f.Add(serving, token, tokenGroups, serverUsages, kubelet, "system:nodes", name, "", "", "", name, "", uint8(0)) // a serving certificate with a join credential
	f.Add(client, kubelet, nodeGroups, clientUsages, kubelet, "system:nodes", "", "", "", "", name, "", uint8(0))   // a renewal by a kubelet
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
	for flags := range uint8(64) {
		f.Add(client, token, tokenGroups, clientUsages, kubelet, "system:nodes", "", "", "", "", name, "", flags)
		f.Add(serving, kubelet, nodeGroups, serverUsages, kubelet, "system:nodes", name, "192.0.2.7", "", "", name, "192.0.2.7", flags)
	}

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, signer, user, groups, usages, commonName, organizations, dnsNames, ips, mail, uri, nodeName, known string, flags uint8) {
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
			t.Skip("no client can create this request")
		}
		cluster := access.ClusterOf(newCluster(), "https://203.0.113.1:6443")
		cluster.ServiceAddresses = []netip.Addr{netip.MustParseAddr("198.51.100.1")}
		input := facts{config: newConfig(), node: newNode(), pools: newPools(), now: time.Now(), cluster: cluster,
			request: &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
				SignerName: signer, Username: user, Groups: split(groups),
				Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			}}}
		for _, usage := range split(usages) {
			input.request.Spec.Usages = append(input.request.Spec.Usages, certificatesv1.KeyUsage(usage))
		}
		for _, address := range split(known) {
			if parsed, err := netip.ParseAddr(address); err == nil {
				input.addresses.known = append(input.addresses.known, parsed)
			}
		}
		input.config.Status.NodeRef.Name, input.node.Name = nodeName, nodeName
		isSet := func(bit uint8) bool { return flags&(1<<bit) != 0 }
		if isSet(0) {
			input.node = nil
		}
		if isSet(1) {
			input.config.Status.NodeRef.UID = "another"
		}
		if isSet(2) && input.node != nil {
			input.node.Labels = nil
		}
		if isSet(3) {
			input.config.Status.Boot.CredentialID = ""
		}
		if isSet(4) {
			input.request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue}}
		}
		if isSet(5) { // a kubelet uses a certificate for another key
			input.config.Status.Certificate = bootstrapv1.GrantedCertificate{CredentialID: tokenID, PublicKeySHA256: "other", GrantedTime: metav1.NewTime(input.now)}
			if input.node != nil {
				input.node.Status.Conditions = readyCondition(corev1.ConditionTrue, "KubeletReady")
			}
		}

		got, why := decide(input)
		if why == "" {
			t.Error("the verdict has no reason")
		}
		if got != approve {
			return
		}
		requested, err := x509.ParseCertificateRequest(der)
		if err != nil {
			t.Fatalf("a malformed request is approved: %v", err)
		}
		mustBe := func(ok bool, property string) {
			if !ok {
				t.Errorf("approved, but not %s: signer %q, user %q, groups %q, usages %q, subject %s, DNS names %q, addresses %v, Node %q, known %q, %b",
					property, signer, user, groups, usages, requested.Subject, requested.DNSNames, requested.IPAddresses, nodeName, known, flags)
			}
		}
		mustBe(!isSet(0) && !isSet(1), "for the recorded Node")
		mustBe(!isSet(4), "undecided")
		mustBe(requested.Subject.CommonName == "system:node:"+nodeName && nodeName != "", "for the user of the Node")
		mustBe(slices.Equal(requested.Subject.Organization, []string{"system:nodes"}), "for the group of Nodes alone")
		mustBe(len(requested.EmailAddresses)+len(requested.URIs) == 0, "without e-mail addresses and URIs")
		for _, reserved := range []string{"kubernetes", "localhost", "api.example.com"} {
			mustBe(!strings.EqualFold(nodeName, reserved), "for a name that a Node can have")
		}
		mustBe(!strings.Contains(strings.ToLower(nodeName)+".", ".svc.") && !strings.HasPrefix(strings.ToLower(nodeName), "kubernetes."), "for a name that is not a Service name")
		mustBe(net.ParseIP(nodeName) == nil && !strings.Contains(nodeName, "*"), "for a name that is not an address or a wildcard")
		has := func(usage certificatesv1.KeyUsage) bool { return slices.Contains(input.request.Spec.Usages, usage) }
		for _, usage := range input.request.Spec.Usages {
			mustBe(slices.Contains([]string{"digital signature", "key encipherment", "client auth", "server auth"}, string(usage)), "for usages of kubelets")
		}
		switch signer {
		case client:
			mustBe(user == token && slices.Contains(input.request.Spec.Groups, join.Group), "created with the join credential of the host")
			mustBe(!isSet(2) && !isSet(3) && !isSet(5), "for a Node in its pool, with a recorded join credential that no kubelet uses")
			mustBe(len(requested.DNSNames)+len(requested.IPAddresses) == 0, "without alternative names")
			mustBe(has("client auth") && !has("server auth"), "for a client")
		case serving:
			mustBe(user == "system:node:"+nodeName && slices.Contains(input.request.Spec.Groups, "system:nodes"), "created by the kubelet of the Node")
			mustBe(has("server auth") && !has("client auth"), "for a server")
			for _, dns := range requested.DNSNames {
				mustBe(dns == nodeName, "only for the name of the Node")
			}
			for _, ip := range requested.IPAddresses {
				mustBe(slices.ContainsFunc(split(known), func(k string) bool { return net.ParseIP(k).Equal(ip) }), "for known addresses of the host")
				mustBe(ip.IsGlobalUnicast(), "for a unicast address")
				for _, cidr := range []string{"198.18.0.0/15", "198.51.100.1/32", "203.0.113.1/32"} {
					_, block, _ := net.ParseCIDR(cidr)
					mustBe(!block.Contains(ip), "for an address that is not that of the API server or a Service")
				}
			}
		default:
			mustBe(false, "for a signer of kubelet certificates")
		}
	})
}

// split splits a comma-separated list.
func split(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}
