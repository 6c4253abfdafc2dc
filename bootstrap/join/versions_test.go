package join_test

import (
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

// versionedHost is a host with a kubelet and a kubeadm, and a server that is its API server and its config server.
type versionedHost struct {
	kubelet, kubeadm string // their versions
	// api are the versions of the API server, one for each request; the last one stays. Without one, it answers 403.
	api     []string
	reports []string
	// refused is how many reports are refused first.
	refused int
}

func (h *versionedHost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodPost && r.URL.Path == "/config/infra/metal/a/pointer" && r.Header.Get("Authorization") == "Bearer machine-token":
		if h.refused--; h.refused >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		body, _ := io.ReadAll(r.Body)
		h.reports = append(h.reports, string(body))
	case r.URL.Path == "/version" && len(h.api) > 0 && (len(r.TLS.PeerCertificates) > 0 || r.Header.Get("Authorization") == "Bearer abc123."+secret):
		fmt.Fprintf(w, "{\n  \"major\": \"1\",\n  \"gitVersion\": %q,\n  \"goVersion\": \"go1.26\"\n}", h.api[0])
		h.api = h.api[min(1, len(h.api)-1):]
	default:
		w.WriteHeader(http.StatusForbidden)
	}
}

// check runs the script as on a host that joins with kubeadm, or with its kubelet only, or with the argument list as on
// one that has joined. Its pauses take no time.
func (h *versionedHost) check(withKubeadm bool, arguments ...string) string {
	GinkgoHelper()
	if _, err := exec.LookPath("curl"); err != nil {
		Skip("curl is not installed")
	}
	server := httptest.NewUnstartedServer(h)
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	chosen := bootstrapv1.Join{Type: bootstrapv1.JoinTypeKubelet}
	if withKubeadm {
		chosen.Type = bootstrapv1.JoinTypeKubeadm
	}
	config, err := join.Machine{
		Config: &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "a"},
			Spec: bootstrapv1.PoolbootConfigSpec{BootSpec: bootstrapv1.BootSpec{Join: chosen}}},
		Registration: registration.Registration{Name: "infra-0", Labels: map[string]string{"poolboot.io/pool": "infra"}},
		Cluster:      join.Cluster{Name: "edge", Server: server.URL, CA: ca},
		Reports:      assignment.Settings{Server: server.URL, CA: string(ca), Namespace: "metal", Name: "a", PointerID: "pointer"},
	}.Overlay(join.Credential{ID: "abc123", Secret: secret})
	Expect(err).NotTo(HaveOccurred())
	root := GinkgoT().TempDir()
	write := func(name, text string, mode os.FileMode) {
		Expect(os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(root, name), []byte(text), mode)).To(Succeed())
	}
	for _, file := range config.Storage.Files {
		if strings.HasPrefix(*file.Contents.Source, "data:") {
			write(file.Path, strings.ReplaceAll(contents(config, file.Path), `"/etc`, `"`+root+"/etc"), 0o600)
		}
	}
	if len(arguments) > 0 {
		Expect(os.RemoveAll(filepath.Join(root, "/etc/kubernetes/bootstrap-kubelet.conf"))).To(Succeed())
		write("/etc/kubernetes/pki/ca.crt", string(ca), 0o600)
		write("/var/lib/kubelet/pki/kubelet-client-current.pem", string(newKubeletCertificate()), 0o600)
	}
	write("/etc/poolboot/report.header", "Authorization: Bearer machine-token\n", 0o600)
	write("/usr/bin/kubelet", "#!/bin/sh\necho Kubernetes "+h.kubelet+"\n", 0o755)
	write("/usr/bin/kubeadm", "#!/bin/sh\n[ \"$*\" = 'version -o short' ] && echo "+h.kubeadm+"\n", 0o755)
	write("/bin/sleep", "#!/bin/sh\n", 0o755)
	write("/run/empty", "", 0o600)
	settings, script, _ := strings.Cut(contents(config, "/etc/poolboot/versions.sh"), "\n")
	write("/script", strings.ReplaceAll(settings, "=/", "="+root+"/")+"\n"+strings.Replace(script, "PATH=", "PATH="+root+"/bin:", 1), 0o600)
	out, err := exec.Command("/bin/sh", append([]string{filepath.Join(root, "script")}, arguments...)...).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	return string(out)
}

var _ = Describe("The versions of a host that joins", func() {
	DescribeTable("fit", func(kubelet, kubeadm string) {
		for _, withKubeadm := range []bool{false, kubeadm != ""} {
			h := &versionedHost{kubelet: kubelet, kubeadm: kubeadm, api: []string{"v1.36.3"}}
			Expect(h.check(withKubeadm)).To(BeEmpty())
			Expect(h.reports).To(BeEmpty())
		}
	},
		Entry("if they are the same", "v1.36.3", "v1.36.3"),
		Entry("with a later patch release", "v1.36.9", "v1.36.0"),
		Entry("with a kubelet that is three minor versions older", "v1.33.0", "v1.36.3"),
		Entry("with the suffix of a distribution", "v1.36.1+k3s1", "v1.36.1-eks-1"),
		Entry("if the kubelet does not run", "", ""),
	)

	DescribeTable("that do not fit keep it from joining, and are reported once with that of the API server, until they do",
		func(withKubeadm bool, kubelet, kubeadm, why string, api ...string) {
			h := &versionedHost{kubelet: kubelet, kubeadm: kubeadm, refused: 1, api: api}
			Expect(h.check(withKubeadm)).To(And(
				ContainSubstring("poolboot: this host does not join, because "+why+". Provision it with an image that fits, or upgrade the control plane: the host checks again every 30 seconds\n"),
				Not(ContainSubstring(secret)), Not(ContainSubstring("machine-token"))))
			Expect(h.reports).To(Equal([]string{"versions\n" + why + "\n"}))
		},
		Entry("a kubelet that is too new", false, "v1.37.0", "", "kubelet v1.37.0 is newer than the API server, v1.36.3", "v1.36.3", "v1.36.3", "v1.36.3", "v1.37.0"),
		Entry("a kubelet that is too old", false, "v1.32.1", "", "kubelet v1.32.1 is more than three minor versions older than the API server, v1.36.3", "v1.36.3", "v1.36.3", "v1.36.3", "v1.35.0"),
		Entry("a kubeadm that is too old", true, "v1.35.0", "v1.35.0", "kubeadm v1.35.0 does not have the minor version of the API server, v1.36.3", "v1.36.3", "v1.36.3", "v1.36.3", "v1.35.9"),
		Entry("both", true, "v1.37.0", "v1.37.0",
			"kubelet v1.37.0 is newer than the API server, v1.36.3, and kubeadm v1.37.0 does not have the minor version of the API server, v1.36.3", "v1.36.3", "v1.36.3", "v1.36.3", "v1.37.0"),
	)

	It("are listed for the agent after the join, with the certificate of the kubelet, and without that of kubeadm", func() {
		h := &versionedHost{kubelet: "v1.37.0", kubeadm: "v1.35.0", api: []string{"v1.36.3"}}
		for _, withKubeadm := range []bool{false, true} {
			Expect(h.check(withKubeadm, "list")).To(Equal("kubelet v1.37.0 is newer than the API server, v1.36.3\n"))
		}
		h.kubelet = "v1.36.0"
		Expect(h.check(true, "list")).To(BeEmpty())
		Expect(h.reports).To(BeEmpty())
	})

	It("are not checked if the API server does not tell its version", func() {
		h := &versionedHost{kubelet: "v1.37.0"}
		Expect(h.check(false)).To(ContainSubstring("poolboot: the version of the API server is not known, so the versions of kubelet and kubeadm are not checked"))
	})
})
