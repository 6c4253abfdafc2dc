package kubeconfig_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	capikubeconfig "sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/kubeconfig"
)

// tenant returns a kubeconfig as Cluster API writes it, after a change.
func tenant(change func(*clientcmdv1.Cluster, *clientcmdv1.AuthInfo)) []byte {
	GinkgoHelper()
	cluster := clientcmdv1.Cluster{Server: "https://192.0.2.1:6443", CertificateAuthorityData: []byte("ca")}
	user := clientcmdv1.AuthInfo{ClientCertificateData: []byte("certificate"), ClientKeyData: []byte("key")}
	change(&cluster, &user)
	content, err := json.Marshal(clientcmdv1.Config{
		Clusters:       []clientcmdv1.NamedCluster{{Name: "other"}, {Name: "edge", Cluster: cluster}},
		AuthInfos:      []clientcmdv1.NamedAuthInfo{{Name: "edge-admin", AuthInfo: user}},
		Contexts:       []clientcmdv1.NamedContext{{Name: "edge-admin@edge", Context: clientcmdv1.Context{Cluster: "edge", AuthInfo: "edge-admin"}}},
		CurrentContext: "edge-admin@edge",
	})
	Expect(err).NotTo(HaveOccurred())
	return content
}

var _ = Describe("A kubeconfig that a tenant wrote", func() {
	It("is read if it is inline, and client-go reads the same from the result", func() {
		read, err := kubeconfig.Read(tenant(func(c *clientcmdv1.Cluster, u *clientcmdv1.AuthInfo) {
			c.TLSServerName, u.Token = "edge.example.com", "token"
		}))
		Expect(err).NotTo(HaveOccurred())
		Expect(read).To(Equal(&kubeconfig.Config{Server: "https://192.0.2.1:6443", TLSServerName: "edge.example.com", CA: []byte("ca"),
			ClientCertificate: []byte("certificate"), ClientKey: []byte("key"), Token: "token"}))
		handedOn, err := read.Kubeconfig("workload", "workload")
		Expect(err).NotTo(HaveOccurred())
		Expect(clientcmd.RESTConfigFromKubeConfig(handedOn)).To(Equal(read.REST()))
	})

	// kept are the fields that Read accepts. harmless are those that it ignores.
	kept := []string{"server", "tls-server-name", "certificate-authority-data", "client-certificate-data", "client-key-data", "token"}
	harmless := []string{"extensions", "disable-compression"}

	It("is refused for every other field of client-go, with an error that names the field", func() {
		for _, part := range []struct {
			path string
			of   func(*clientcmdv1.Cluster, *clientcmdv1.AuthInfo) any
		}{
			{"clusters[1].cluster.", func(c *clientcmdv1.Cluster, _ *clientcmdv1.AuthInfo) any { return c }},
			{"users[0].user.", func(_ *clientcmdv1.Cluster, u *clientcmdv1.AuthInfo) any { return u }},
		} {
			kind := reflect.TypeOf(part.of(&clientcmdv1.Cluster{}, &clientcmdv1.AuthInfo{})).Elem()
			for i := range kind.NumField() {
				name, _, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ",")
				_, err := kubeconfig.Read(tenant(func(c *clientcmdv1.Cluster, u *clientcmdv1.AuthInfo) {
					set(reflect.ValueOf(part.of(c, u)).Elem().Field(i))
				}))
				matches := MatchError(HavePrefix(part.path + name + ": "))
				if name != "server" { // set does not set it to a URL
					for _, accepted := range append(kept, harmless...) {
						if name == accepted {
							matches = Succeed()
						}
					}
				}
				Expect(err).To(matches, part.path+name)
				if err != nil {
					Expect(err.Error()).NotTo(ContainSubstring("hunter2"))
				}
			}
		}
	})

	DescribeTable("is refused for a server without a plain https URL",
		func(server string) {
			_, err := kubeconfig.Read(tenant(func(c *clientcmdv1.Cluster, _ *clientcmdv1.AuthInfo) { c.Server = server }))
			Expect(err).To(MatchError(And(HavePrefix("clusters[1].cluster.server: "), ContainSubstring("https"))))
		},
		Entry("plain HTTP", "http://169.254.169.254"),
		Entry("no scheme", "192.0.2.1:6443"),
		Entry("no host", "https://"),
		Entry("only a port", "https://:6443"),
		Entry("a user", "https://admin:hunter2@192.0.2.1"),
		Entry("a query", "https://192.0.2.1/?a=b"),
		Entry("an empty query", "https://192.0.2.1/?"),
		Entry("a fragment", "https://192.0.2.1/#a"),
		Entry("an invalid URL", "https://edge edge:1"),
		Entry("no server", ""),
	)

	DescribeTable("is refused when it is invalid, with an error that does not contain its content",
		func(content, says string) {
			_, err := kubeconfig.Read([]byte(content))
			Expect(err).To(MatchError(And(ContainSubstring(says), Not(ContainSubstring("hunter2")))))
		},
		Entry("text", "hunter2", "not a kubeconfig"),
		Entry("an unknown anchor", "users: *hunter2", "not a kubeconfig"),
		Entry("data of another type", `users: [{user: {exec: hunter2}}]`, "users.user.exec: has the wrong type"),
		Entry("data that is not base64", `clusters: [{cluster: {certificate-authority-data: "hunter2!"}}]`, "not a kubeconfig"),
		Entry("nothing", "", "current-context"),
		Entry("no context", `current-context: hunter2`, "current-context"),
		Entry("no cluster", `{current-context: a, contexts: [{name: a, context: {cluster: hunter2}}]}`, "contexts[0].context.cluster"),
		Entry("no user", `{current-context: a, contexts: [{name: a, context: {cluster: b, user: hunter2}}], clusters: [{name: b, cluster: {server: "https://b"}}]}`,
			"contexts[0].context.user"),
		Entry("a certificate without a key", string(tenant(func(_ *clientcmdv1.Cluster, u *clientcmdv1.AuthInfo) { u.ClientKeyData = nil })),
			"users[0].user.client-certificate-data"),
	)

	It("reaches the cluster cache of Cluster API only as Read understood it", func(ctx SpecContext) {
		file := filepath.Join(GinkgoT().TempDir(), "token")
		Expect(os.WriteFile(file, []byte("the manager's own token"), 0o600)).To(Succeed())
		edge := client.ObjectKey{Namespace: "metal", Name: "edge"}
		stored := func(content []byte) client.Reader {
			return kubeconfig.Secrets{Reader: fake.NewClientBuilder().WithObjects(&corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "edge-kubeconfig"},
				Data:       map[string][]byte{"value": content, "other": []byte("data")}}).Build()}
		}
		for field, change := range map[string]func(*clientcmdv1.Cluster, *clientcmdv1.AuthInfo){
			"users[0].user.tokenFile":                   func(_ *clientcmdv1.Cluster, u *clientcmdv1.AuthInfo) { u.TokenFile = file },
			"users[0].user.client-certificate":          func(_ *clientcmdv1.Cluster, u *clientcmdv1.AuthInfo) { u.ClientCertificate, u.ClientKey = file, file },
			"users[0].user.client-key":                  func(_ *clientcmdv1.Cluster, u *clientcmdv1.AuthInfo) { u.ClientKey = file },
			"clusters[1].cluster.certificate-authority": func(c *clientcmdv1.Cluster, _ *clientcmdv1.AuthInfo) { c.CertificateAuthority = file },
			"users[0].user.exec": func(_ *clientcmdv1.Cluster, u *clientcmdv1.AuthInfo) {
				u.Exec = &clientcmdv1.ExecConfig{Command: "touch"}
			},
			"users[0].user.auth-provider": func(_ *clientcmdv1.Cluster, u *clientcmdv1.AuthInfo) {
				u.AuthProvider = &clientcmdv1.AuthProviderConfig{}
			},
			"clusters[1].cluster.proxy-url":                func(c *clientcmdv1.Cluster, _ *clientcmdv1.AuthInfo) { c.ProxyURL = "socks5://192.0.2.1" },
			"clusters[1].cluster.insecure-skip-tls-verify": func(c *clientcmdv1.Cluster, _ *clientcmdv1.AuthInfo) { c.InsecureSkipTLSVerify = true },
		} {
			_, err := capikubeconfig.FromSecret(ctx, stored(tenant(change)), edge)
			Expect(err).To(MatchError(And(HavePrefix(field+": "), HaveSuffix("correct the kubeconfig in Secret metal/edge-kubeconfig"))))
			var refused *kubeconfig.SecretError
			Expect(errors.As(err, &refused)).To(BeTrue())
		}

		By("ignoring settings without an effect")
		content, err := capikubeconfig.FromSecret(ctx, stored(tenant(func(c *clientcmdv1.Cluster, _ *clientcmdv1.AuthInfo) {
			c.Extensions = []clientcmdv1.NamedExtension{{Name: "odd", Extension: runtime.RawExtension{Raw: []byte(`{"command":"touch"}`)}}}
		})), edge)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(content)).NotTo(Or(ContainSubstring("touch"), ContainSubstring("other")))
		Expect(kubeconfig.Read(content)).To(Equal(&kubeconfig.Config{Server: "https://192.0.2.1:6443", CA: []byte("ca"),
			ClientCertificate: []byte("certificate"), ClientKey: []byte("key")}))

		By("refusing to read anything else")
		Expect(kubeconfig.Secrets{}.Get(ctx, edge, &corev1.ConfigMap{})).To(MatchError(ContainSubstring("only kubeconfig Secrets")))
		Expect(kubeconfig.Secrets{}.List(ctx, &corev1.SecretList{})).To(MatchError(ContainSubstring("cannot be listed")))
	})

	It("sends no request to an address to which its server redirects", func() {
		var asked atomic.Int32
		other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
		DeferCleanup(other.Close)
		server := httptest.NewTLSServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
		DeferCleanup(server.Close)
		config := (&kubeconfig.Config{Server: server.URL, Token: "token"}).REST()
		config.Insecure = true
		c, err := kubeconfig.HTTPClient(config)
		Expect(err).NotTo(HaveOccurred())
		answer, err := c.Get(server.URL)
		Expect(err).NotTo(HaveOccurred())
		Expect(answer.Body.Close()).To(Succeed())
		Expect(answer.StatusCode).To(Equal(http.StatusTemporaryRedirect))
		Expect(asked.Load()).To(BeZero())
		Expect(http.DefaultClient.CheckRedirect).To(BeNil())
	})
})

// set sets a field to a value other than its zero value.
func set(field reflect.Value) {
	switch field.Kind() {
	case reflect.String:
		field.SetString("hunter2")
	case reflect.Bool:
		field.SetBool(true)
	case reflect.Pointer:
		field.Set(reflect.New(field.Type().Elem()))
	case reflect.Map:
		field.Set(reflect.MakeMap(field.Type()))
		field.SetMapIndex(reflect.ValueOf("hunter2"), reflect.Zero(field.Type().Elem()))
	case reflect.Slice:
		field.Set(reflect.MakeSlice(field.Type(), 1, 1))
	default:
		Fail("a field of a new kind: " + field.Kind().String())
	}
}
