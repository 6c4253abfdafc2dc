package install_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/cluster-api/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterapi"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterctl"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/loopback"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

const certManagerAccount = "system:serviceaccount:cert-manager:cert-manager"

var _ = Describe("clusterctl", Ordered, func() {
	var (
		program    *clusterctl.Clusterctl
		management *controlplane.ControlPlane
		objects    client.Client
		dir        string
		providers  = []string{"--core=cluster-api", "--bootstrap=kubeadm,poolboot", "--control-plane=kubeadm", "--infrastructure=metal3"}
	)

	BeforeAll(func(ctx SpecContext) {
		var err error
		dir = GinkgoT().TempDir()
		variables := map[string]string{"POOLBOOT_CONFIG_SERVER_HOST": serverHost, "CLUSTER_TOPOLOGY": "true"}
		program, err = clusterctl.New(ctx, dir, filepath.Dir(filepath.Dir(releaseDir)), variables)
		Expect(err).NotTo(HaveOccurred())
		management, err = controlplane.Start(ctx, controlplane.Options{Name: "clusterctl", ControllerManager: true, Audit: true})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(management.Stop()).To(Succeed()) })
		objects, err = client.New(management.Config, client.Options{Scheme: clusterapi.Scheme()})
		Expect(err).NotTo(HaveOccurred())
	})

	It("is of the version of Cluster API that Poolboot imports", func(ctx SpecContext) {
		version := runGo(ctx, sourcetree.Path(), "list", "-m", "-f", "{{.Version}}", "sigs.k8s.io/cluster-api")
		output, _, err := program.Run(ctx, "", "version", "--output=short")
		Expect(err).NotTo(HaveOccurred())
		Expect(output).To(Equal(version + "\n"))
	})

	It("lists the images of a release, and those of the other providers, which the tests build", func(ctx SpecContext) {
		var archive ociIndex
		readBlob(readTar(program.Images), "index.json", &archive)
		images := components.Images()
		for _, image := range archive.Manifests {
			images = append(images, image.Annotations["io.containerd.image.name"])
		}
		output, _, err := program.Run(ctx, management.Kubeconfig, slices.Concat([]string{"init", "list-images"}, providers)...)
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Fields(output)).To(ConsistOf(images))
	})

	It("describes the variables of a release, and generates a Cluster of each flavor from its files", func(ctx SpecContext) {
		output, _, err := program.Run(ctx, "", "generate", "provider", "--bootstrap=poolboot", "--describe")
		Expect(err).NotTo(HaveOccurred())
		Expect(output).To(MatchRegexp(`(?s)Version: +%s.*POOLBOOT_CONFIG_SERVER_HOST.*Images:.*/config-server:`, releaseVersion))
		arguments := []string{"generate", "cluster", clusterName, "--target-namespace=edge", "--kubernetes-version=v1.36.3", "--control-plane-machine-count=3", "--worker-machine-count=2"}
		for name, value := range variables {
			GinkgoT().Setenv(name, value)
		}
		for _, flavor := range []string{"cluster-template.yaml", "cluster-template-topology.yaml", "cluster-template-edge-site.yaml"} {
			output, _, err := program.Run(ctx, management.Kubeconfig, append(arguments, "--from="+filepath.Join(releaseDir, flavor))...)
			Expect(err).NotTo(HaveOccurred())
			objects, err := yaml.ToUnstructured([]byte(output))
			Expect(err).NotTo(HaveOccurred())
			Expect(objects).To(ContainElement(And(HaveField("GetKind()", "Cluster"), HaveField("GetName()", clusterName), HaveField("GetNamespace()", "edge"))))
		}
	})

	It("refuses to install a release without the address at which hosts reach the config server", func(ctx SpecContext) {
		without, err := clusterctl.New(ctx, GinkgoT().TempDir(), filepath.Dir(filepath.Dir(releaseDir)), nil)
		Expect(err).NotTo(HaveOccurred())
		_, _, err = without.Run(ctx, management.Kubeconfig, slices.Concat([]string{"init"}, providers)...)
		Expect(err).To(MatchError(ContainSubstring("value for variables [POOLBOOT_CONFIG_SERVER_HOST] is not set")))
	})

	It("installs a release with cert-manager and the other providers", func(ctx SpecContext) {
		_, messages, err := program.Run(ctx, management.Kubeconfig, slices.Concat([]string{"init"}, providers)...)
		Expect(err).NotTo(HaveOccurred())
		Expect(messages).To(ContainSubstring("Your management cluster has been initialized successfully!"))
		installed := listUnstructured(ctx, objects, schema.GroupVersionKind{Group: "clusterctl.cluster.x-k8s.io", Version: "v1alpha3", Kind: "Provider"})
		Expect(installed).To(ConsistOf(HaveField("GetName()", "cluster-api"), HaveField("GetName()", "bootstrap-kubeadm"),
			HaveField("GetName()", "bootstrap-poolboot"), HaveField("GetName()", "control-plane-kubeadm"), HaveField("GetName()", "infrastructure-metal3")))
	})

	It("gets certificates from cert-manager, which injects their CA into webhooks", func(ctx SpecContext) {
		health := loopback.Address(findFreePort())
		runPod(ctx, dir, management.Kubeconfig, filepath.Join(binDir, "cluster-api", "cert-manager"),
			readPod(ctx, objects, "cert-manager", "cert-manager"), health, "--health-addr="+health)
		Eventually(func(g Gomega) {
			certificates := listUnstructured(ctx, objects, schema.GroupVersionKind{Group: "cert-manager.io", Version: "v1", Kind: "Certificate"})
			g.Expect(len(certificates)).To(BeNumerically(">", 3))
			for _, each := range certificates {
				conditions, _, err := unstructured.NestedSlice(each.Object, "status", "conditions")
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(conditions).To(ContainElement(And(HaveKeyWithValue("type", "Ready"), HaveKeyWithValue("status", "True"))), each.GetName())
			}
			for name, bundle := range readBundles(ctx, g, objects) {
				g.Expect(string(bundle)).To(HavePrefix("-----BEGIN CERTIFICATE-----"), name)
			}
		}).Should(Succeed())
	})

	DescribeTable("installs managers that run with their arguments and rights, and serve webhooks that the API server trusts",
		func(ctx SpecContext, provider string) {
			namespace, service := provider+"-system", provider+"-webhook-service"
			pod := readPod(ctx, objects, namespace, provider+"-controller-manager")
			folder, _, _ := strings.Cut(path.Base(pod.Spec.Containers[0].Image), ":")
			serving := &corev1.Secret{}
			Expect(objects.Get(ctx, client.ObjectKey{Namespace: namespace, Name: pod.Spec.Volumes[0].Secret.SecretName}, serving)).To(Succeed())
			out, health, webhook := GinkgoT().TempDir(), loopback.Address(findFreePort()), findFreePort()
			for name, content := range serving.Data {
				Expect(os.WriteFile(filepath.Join(out, name), content, 0o600)).To(Succeed())
			}
			runPod(ctx, out, management.Kubeconfig, filepath.Join(binDir, "cluster-api", folder, "manager"), pod, health, "--leader-elect=false",
				"--health-addr="+health, "--diagnostics-address="+loopback.Address(findFreePort()), "--webhook-cert-dir="+out, fmt.Sprint("--webhook-port=", webhook))
			for name, bundle := range readBundles(ctx, Default, objects) {
				if !strings.HasPrefix(name, service+" ") {
					continue
				}
				roots := x509.NewCertPool()
				Expect(roots.AppendCertsFromPEM(bundle)).To(BeTrue())
				connection, err := tls.Dial("tcp", loopback.Address(webhook), &tls.Config{RootCAs: roots, ServerName: service + "." + namespace + ".svc"})
				Expect(err).NotTo(HaveOccurred(), name)
				Expect(connection.Close()).To(Succeed())
			}
		},
		Entry("of the core", "capi"),
		Entry("of the kubeadm bootstrap provider", "capi-kubeadm-bootstrap"),
		Entry("of the kubeadm control plane provider", "capi-kubeadm-control-plane"),
	)

	It("gives cert-manager all rights that it needs", func() {
		var refused []string
		Expect(management.EachRequest(func(r controlplane.Request) {
			if r.Impersonated.Name == certManagerAccount && r.Object.Resource != "" && r.Annotations["authorization.k8s.io/decision"] == "forbid" {
				refused = append(refused, r.Verb+" "+r.RequestURI)
			}
		})).To(Succeed())
		Expect(refused).To(BeEmpty())
	})
})

// readPod returns a Pod of an installed Deployment.
func readPod(ctx SpecContext, c client.Client, namespace, name string) *corev1.Pod {
	GinkgoHelper()
	deployment := &appsv1.Deployment{}
	Expect(c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, deployment)).To(Succeed())
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: deployment.Spec.Template.Spec}
}

// readBundles returns the CA bundle of each installed webhook, by its Service and its own name.
func readBundles(ctx SpecContext, g Gomega, c client.Client) map[string][]byte {
	bundles := map[string][]byte{}
	var validating admissionregistrationv1.ValidatingWebhookConfigurationList
	g.Expect(c.List(ctx, &validating)).To(Succeed())
	for _, configuration := range validating.Items {
		for _, webhook := range configuration.Webhooks {
			bundles[webhook.ClientConfig.Service.Name+" "+webhook.Name] = webhook.ClientConfig.CABundle
		}
	}
	var mutating admissionregistrationv1.MutatingWebhookConfigurationList
	g.Expect(c.List(ctx, &mutating)).To(Succeed())
	for _, configuration := range mutating.Items {
		for _, webhook := range configuration.Webhooks {
			bundles[webhook.ClientConfig.Service.Name+" "+webhook.Name] = webhook.ClientConfig.CABundle
		}
	}
	var definitions apiextensionsv1.CustomResourceDefinitionList
	g.Expect(c.List(ctx, &definitions)).To(Succeed())
	for _, definition := range definitions.Items {
		if conversion := definition.Spec.Conversion; conversion != nil && conversion.Webhook != nil {
			bundles[conversion.Webhook.ClientConfig.Service.Name+" "+definition.Name] = conversion.Webhook.ClientConfig.CABundle
		}
	}
	g.Expect(bundles).NotTo(BeEmpty())
	return bundles
}

func listUnstructured(ctx SpecContext, c client.Client, kind schema.GroupVersionKind) []unstructured.Unstructured {
	GinkgoHelper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	Expect(c.List(ctx, list)).To(Succeed())
	return list.Items
}
