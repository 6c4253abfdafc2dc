package kubelet

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

func TestKubelet(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "The identity of the kubelet")
}

// newPEM returns a certificate and its key, in one file and separately.
func newPEM(commonName string, notAfter time.Time) (both, certificate, key []byte) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: commonName}, NotBefore: time.Unix(0, 0), NotAfter: notAfter}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		panic(err)
	}
	rawKey, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		panic(err)
	}
	certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	key = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: rawKey})
	return append(append([]byte{}, certificate...), key...), certificate, key
}

func newHost() (Host, func(name string, contents []byte)) {
	GinkgoHelper()
	directory := GinkgoT().TempDir()
	root, err := os.OpenRoot(directory)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(root.Close)
	return Host{Root: root}, func(name string, contents []byte) {
		name = filepath.Join(directory, name)
		Expect(os.MkdirAll(filepath.Dir(name), 0o755)).To(Succeed())
		Expect(os.WriteFile(name, contents, 0o600)).To(Succeed())
	}
}

var _ = Describe("The certificate", func() {
	It("is read again when the kubelet has renewed it, and names the Node", func() {
		host, write := newHost()
		first, _, _ := newPEM("system:node:edge-7", time.Now().Add(time.Hour))
		write(ignition.KubeletPKIDirectory+"/kubelet-client-1.pem", first)
		Expect(host.Root.Symlink(ignition.KubeletPKIDirectory+"/kubelet-client-1.pem", CertificatePath[1:])).To(Succeed())
		certificate, err := host.Certificate()
		Expect(err).NotTo(HaveOccurred())
		Expect(NodeName(certificate)).To(Equal("edge-7"))

		second, _, _ := newPEM("system:node:edge-8", time.Now().Add(time.Hour))
		write(ignition.KubeletPKIDirectory+"/kubelet-client-2.pem", second)
		Expect(host.Root.Remove(CertificatePath[1:])).To(Succeed())
		Expect(host.Root.Symlink("kubelet-client-2.pem", CertificatePath[1:])).To(Succeed())
		certificate, err = host.Certificate()
		Expect(err).NotTo(HaveOccurred())
		Expect(NodeName(certificate)).To(Equal("edge-8"))
	})

	It("is missing before the host has joined", func() {
		host, _ := newHost()
		_, err := host.Certificate()
		Expect(err).To(MatchError(ErrNotJoined))
		_, err = host.APIServer()
		Expect(err).To(MatchError(ErrNotJoined))
	})

	It("that is not that of a kubelet has no Node", func() {
		host, write := newHost()
		both, _, _ := newPEM("kubernetes-admin", time.Now())
		write(CertificatePath, both)
		certificate, err := host.Certificate()
		Expect(err).NotTo(HaveOccurred())
		_, err = NodeName(certificate)
		Expect(err).To(MatchError(ContainSubstring("not that of a kubelet")))
	})

	It("that can't be read never shows its key", func() {
		host, write := newHost()
		_, certificate, key := newPEM("system:node:edge-7", time.Now())
		for _, contents := range [][]byte{key, certificate, []byte("x"), nil} {
			write(CertificatePath, contents)
			_, err := host.Certificate()
			Expect(err).To(MatchError(ContainSubstring(CertificatePath)))
			Expect(err.Error()).NotTo(ContainSubstring(string(key[30:60])))
		}
	})
})

var _ = Describe("The API server", func() {
	_, ca, _ := newPEM("ca", time.Unix(1, 0))
	config := func(cluster string) []byte {
		return []byte("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n- name: other\n  context: {cluster: other, user: u}\n- name: c\n  context: {cluster: edge, user: u}\n" +
			"clusters:\n- name: other\n  cluster: {server: 'https://other:6443'}\n- name: edge\n  cluster: {" + cluster + "}\nusers:\n- name: u\n  user: {token: s3cret}\n")
	}
	data := "certificate-authority-data: " + base64.StdEncoding.EncodeToString(ca)

	It("is that of the current context", func() {
		host, write := newHost()
		write(ignition.KubeconfigPath, config("server: 'https://edge:6443', "+data))
		server, err := host.APIServer()
		Expect(err).NotTo(HaveOccurred())
		Expect(server.URL.String()).To(Equal("https://edge:6443"))
		write("/etc/kubernetes/pki/ca.crt", ca)
		write(ignition.KubeconfigPath, config("server: 'https://edge:6443/base', certificate-authority: /etc/kubernetes/pki/ca.crt"))
		server, err = host.APIServer()
		Expect(err).NotTo(HaveOccurred())
		Expect(server.URL.JoinPath("/api").String()).To(Equal("https://edge:6443/base/api"))
	})

	It("is verified by the old and the new CA while one replaces the other", func() {
		host, write := newHost()
		_, next, _ := newPEM("next", time.Unix(1, 0))
		write(ignition.KubeconfigPath, config("server: 'https://edge:6443', certificate-authority-data: "+base64.StdEncoding.EncodeToString(slices.Concat(ca, next))))
		server, err := host.APIServer()
		Expect(err).NotTo(HaveOccurred())
		both := x509.NewCertPool()
		Expect(both.AppendCertsFromPEM(ca)).To(BeTrue())
		Expect(both.AppendCertsFromPEM(next)).To(BeTrue())
		Expect(server.CAs.Equal(both)).To(BeTrue())
	})

	DescribeTable("is refused", func(contents func() []byte) {
		host, write := newHost()
		write(ignition.KubeconfigPath, contents())
		_, err := host.APIServer()
		Expect(err).To(MatchError(ContainSubstring(ignition.KubeconfigPath)))
		Expect(err.Error()).NotTo(ContainSubstring("s3cret"))
	},
		Entry("without TLS", func() []byte { return config("server: 'http://edge:6443', " + data) }),
		Entry("without a CA", func() []byte { return config("server: 'https://edge:6443'") }),
		Entry("with a CA that is none", func() []byte { return config("server: 'https://edge:6443', certificate-authority-data: eA==") }),
		Entry("with a password", func() []byte { return config("server: 'https://a:s3cret@edge:6443', " + data) }),
		Entry("without its cluster", func() []byte { return []byte("current-context: c") }),
		Entry("in a file that is not YAML", func() []byte { return []byte("token: s3cret\n\t") }),
		Entry("in a large file", func() []byte { return make([]byte, maxFile+1) }),
	)
})

func FuzzKubeconfig(f *testing.F) {
	f.Add([]byte("current-context: c"))
	_, ca, _ := newPEM("ca", time.Unix(1, 0))
	f.Add(fmt.Appendf(nil, "current-context: c\ncontexts: [{name: c, context: {cluster: d}}]\nclusters: [{name: d, cluster: {server: 'https://h', certificate-authority-data: %s}}]",
		base64.StdEncoding.EncodeToString(ca)))
	directory := f.TempDir()
	root, err := os.OpenRoot(directory)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		server, err := Host{Root: root}.parse(raw)
		if err == nil && (server.URL.Scheme != "https" || server.URL.Host == "" || server.CAs == nil) {
			t.Errorf("%q is read as %v", raw, server.URL)
		}
	})
}
