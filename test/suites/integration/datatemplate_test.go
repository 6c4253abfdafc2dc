package integration

import (
	"context"
	"os"
	"regexp"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/networkdata"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var _ = Describe("A Machine with a data template of Metal3", func() {
	// create creates what docs/images.md shows, with these addresses.
	create := func(ctx context.Context, t *tenant.Tenant, shell *terminal, first string) {
		GinkgoHelper()
		page, err := os.ReadFile(sourcetree.Path("docs", "images.md"))
		Expect(err).NotTo(HaveOccurred())
		manifest := regexp.MustCompile("(?ms)^```yaml\n(# static-addresses.yaml\n.*?)^```").FindSubmatch(page)[1]
		shell.write("static-addresses.yaml", strings.NewReplacer("clusterName: edge", "clusterName: "+t.Namespace, "start: 192.0.2.10", "start: "+first).Replace(string(manifest)))
	}
	// run runs a command of the page.
	run := func(ctx context.Context, t *tenant.Tenant, shell *terminal, i int) {
		GinkgoHelper()
		command := parseCommands("images.md", "static")[i]
		Expect(unwrap(shell.run(ctx, strings.ReplaceAll(command.line, "-n metal", "-n "+t.Namespace)))).To(Equal(unwrap(command.output)))
	}

	It("waits until its pool says what applies its network data, boots with its static address, and leaves references on its host that explain names when they keep the next Machine from booting", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		history, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		shell := &terminal{dir: GinkgoT().TempDir()}
		create(ctx, t, shell, "192.0.2.10")
		run(ctx, t, shell, 0)
		deployment := t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels, DataTemplate: "rack"})
		config := t.Config(ctx, "infra")
		bmh := newHost(t, t.HostName(0))
		Eventually(t.Condition(config, bootstrapv1.DataSecretAvailableCondition)).WithContext(ctx).Should(And(
			HavePrefix("False "+bootstrapv1.NetworkRendererNotSetReason), ContainSubstring("spec.networkData of Metal3DataTemplate "+t.Namespace+"/rack")))
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(bmh), bmh)).To(Succeed())
		Expect(bmh.Spec.ConsumerRef).To(BeNil(), "the host stays off")
		run(ctx, t, shell, 1)
		host := waitForConfiguration(ctx, t, config)
		Expect(host.readFile("/etc/systemd/network/70-network-data-nic1.network")).To(Equal("[Match]\nPermanentMACAddress=" + bmh.Spec.BootMACAddress +
			"\n\n[Link]\nMTUBytes=1500\n\n[Network]\nDHCP=no\nIPv6AcceptRA=no\nDNS=192.0.2.53\nAddress=192.0.2.10/24\n\n[Route]\nDestination=0.0.0.0/0\nGateway=192.0.2.1\n"))
		By("reading what the operator of Metal3 puts on the config drive, as the image does")
		secret := &corev1.Secret{}
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(bmh), bmh)).To(Succeed())
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: bmh.Spec.NetworkData.Name}, secret)).To(Succeed())
		drive, err := yaml.YAMLToJSON(secret.Data["networkData"])
		Expect(err).NotTo(HaveOccurred())
		data, err := networkdata.Parse(drive)
		Expect(err).NotTo(HaveOccurred())
		Expect(data.Networkd()).To(HaveLen(1))
		Expect(host.readFile(data.Networkd()[0].Path)).To(BeEquivalentTo(data.Networkd()[0].Contents), "its network stays the same")
		name := config.Status.NodeRef.Name
		Eventually(ctx, func() []site.NodeVersion { return history.Of(name) }).ShouldNot(BeEmpty())
		Expect(site.Judge(history.Of(name), "infra", t.Pools(ctx))).To(And(HaveField("BornInPool", true), HaveField("Outside", 0)))
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(bmh), bmh)).To(Succeed())
		gone := t.Machine(ctx, config).Spec.InfrastructureRef.Name + "-networkdata"
		Expect(bmh.Spec.NetworkData).To(Equal(&corev1.SecretReference{Namespace: t.Namespace, Name: gone}))

		By("using the host for a Machine without a data template")
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
		t.Scale(ctx, deployment, 0)
		Eventually(ctx, func(ctx context.Context) (*corev1.ObjectReference, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(bmh), bmh)
			return bmh.Spec.ConsumerRef, err
		}).Should(BeNil())
		t.Deploy(ctx, tenant.Deployment{Name: "plain", Replicas: 1})
		plain := t.Config(ctx, "plain")
		machine := t.Machine(ctx, plain)
		Eventually(ctx, func() string {
			return unwrap(shell.run(ctx, "kubectl poolboot explain machine "+machine.Name+" -n "+t.Namespace))
		}).Should(
			ContainSubstring("spec.networkData of BareMetalHost " + t.Namespace + "/" + bmh.Name + " is Secret " + gone +
				", which does not exist: create the Secret, or remove spec.networkData"))
		patch(ctx, bmh, func(h *bmov1alpha1.BareMetalHost) { h.Spec.MetaData, h.Spec.NetworkData = nil, nil })
		waitForConfiguration(ctx, t, plain)
		Expect(plain.Status.PoolRole).To(Equal("worker"))
	})

	It("that gets no address is the message of boots and explain", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		shell := &terminal{dir: GinkgoT().TempDir()}
		create(ctx, t, shell, "192.0.2.20") // after the last one
		run(ctx, t, shell, 0)
		run(ctx, t, shell, 1)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels, DataTemplate: "rack"})
		machine := t.Machine(ctx, t.Config(ctx, "infra"))
		for _, command := range []string{"boots " + machine.Name, "explain machine " + machine.Name} {
			Eventually(ctx, func() string { return unwrap(shell.run(ctx, "kubectl poolboot "+command+" -n "+t.Namespace)) }).Should(
				ContainSubstring("IP allocation for rack failed: Exhausted IP Pools: if it stays, correct the cause and delete the Machine"))
		}
	})
})
