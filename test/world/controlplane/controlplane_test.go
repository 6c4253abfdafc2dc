package controlplane_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
)

var _ = Describe("a control plane", Ordered, func() {
	var (
		plane *controlplane.ControlPlane
		admin kubernetes.Interface
	)

	BeforeAll(func(ctx SpecContext) {
		start := time.Now()
		var err error
		plane, err = controlplane.Start(ctx, controlplane.Options{Name: "spec", ControllerManager: true, Audit: true, Log: GinkgoLogr})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(plane.Stop()).To(Succeed()) })
		AddReportEntry("ready after", time.Since(start))
		admin, err = kubernetes.NewForConfig(plane.Config)
		Expect(err).NotTo(HaveOccurred())
	})

	It("lets a kubelet register only its own Node, without a role", func(ctx SpecContext) {
		cfg, err := plane.UserConfig("system:node:n1", "system:nodes")
		Expect(err).NotTo(HaveOccurred())
		kubelet, err := kubernetes.NewForConfig(cfg)
		Expect(err).NotTo(HaveOccurred())
		register := func(name string, labels map[string]string) error {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
			_, err := kubelet.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
			return err
		}
		Expect(register("n2", nil)).To(Satisfy(apierrors.IsForbidden))
		Expect(register("n1", map[string]string{"node-role.kubernetes.io/infra": ""})).To(Satisfy(apierrors.IsForbidden))
		Expect(register("n1", nil)).To(Succeed())
	})

	It("signs the approved certificate request of a kubelet with a bootstrap token", func(ctx SpecContext) {
		createBootstrapToken(ctx, admin)
		var request *certificatesv1.CertificateSigningRequest
		// The API server accepts the token and the role with a delay.
		Eventually(func(g Gomega) { request = requestCertificate(ctx, g, plane.Config, "n3") }).Should(Succeed())
		approve(ctx, admin, request)
		Eventually(func(g Gomega) {
			request, err := admin.CertificatesV1().CertificateSigningRequests().Get(ctx, request.Name, metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(request.Status.Certificate).NotTo(BeEmpty())
			g.Expect(isSignedBy(plane.CA, request.Status.Certificate)).To(Succeed())
		}).Should(Succeed())
	})

	It("keeps its data and its endpoint when the API server is stopped and started", func(ctx SpecContext) {
		endpoint := plane.Endpoint
		Expect(plane.StopAPIServer()).To(Succeed())
		Eventually(func() error { // an open connection can fail first
			_, err := admin.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})
			return err
		}).Should(MatchError(ContainSubstring("connection refused")))
		Expect(plane.StartAPIServer(ctx)).To(Succeed())
		Expect(plane.Endpoint).To(Equal(endpoint))
		Expect(admin.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})).NotTo(BeNil())
	})

	It("logs requests with their users", func() {
		Expect(plane.Requests()).To(ContainElement(HaveField("User.Name", "system:node:n1")))
	})

	It("logs the Node that a write returned, from which docs/tasks.md proves where a host was", func(ctx SpecContext) {
		_, err := admin.CoreV1().Nodes().Patch(ctx, "n1", types.MergePatchType, []byte(`{"metadata": {"labels": {"example.com/in": "infra"}}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		labels := func() (all []map[string]string) {
			data, err := os.ReadFile(plane.AuditLog)
			Expect(err).NotTo(HaveOccurred())
			for line := range strings.Lines(string(data)) {
				var event struct {
					ObjectRef      struct{ Resource, Name string }
					ResponseObject corev1.Node
				}
				if json.Unmarshal([]byte(line), &event) == nil && event.ObjectRef.Resource == "nodes" && event.ResponseObject.Name == "n1" {
					all = append(all, event.ResponseObject.Labels)
				}
			}
			return all
		}
		Eventually(labels).Should(ContainElements(Not(HaveKey("example.com/in")), HaveKeyWithValue("example.com/in", "infra")))
	})
})

var _ = Describe("a control plane that can't start", func() {
	It("reports the missing program and what to do", func(ctx SpecContext) {
		_, err := controlplane.Start(ctx, controlplane.Options{Name: "none", BinDir: GinkgoT().TempDir()})
		Expect(err).To(MatchError(And(ContainSubstring("etcd is missing"), ContainSubstring("make binaries"))))
	})

	It("shows the end of the log of the program that failed", func(ctx SpecContext) {
		bin := GinkgoT().TempDir()
		for _, program := range []string{"etcd", "kube-apiserver"} {
			script := "#!/bin/sh\necho disk is full\nexit 1\n"
			Expect(os.WriteFile(filepath.Join(bin, program), []byte(script), 0o700)).To(Succeed())
		}
		_, err := controlplane.Start(context.Background(), controlplane.Options{Name: "broken", Dir: GinkgoT().TempDir(), BinDir: bin})
		Expect(err).To(MatchError(And(ContainSubstring("etcd did not become ready"), ContainSubstring("disk is full"))))
	})
})
