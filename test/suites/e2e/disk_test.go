package e2e

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// fullConfig precedes the whole configuration of a host, with its secrets, on the console of a host whose Ignition
// fails.
const fullConfig = "Full config:"

var redacted = regexp.MustCompile(`(?s)` + fullConfig + `.*?CRITICAL`)

var _ = Describe("A host whose disk is full before Ignition has written all files", func() {
	It("starts no kubelet, and joins its pool with the same token and under any address when the image is written to a larger disk", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		history, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		lab.Hardware.SetDiskSize(t.HostName(0), 64<<10)
		t.AddHost(ctx, t.HostName(0))
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		var machine *baremetal.Host
		Eventually(ctx, func() *baremetal.Host { machine = lab.Hardware.Host(t.HostName(0)); return machine }).ShouldNot(BeNil())
		failure := MatchError(And(ContainSubstring("ignition, stage files: exit status"), ContainSubstring("no space left on device")))
		Eventually(ctx, machine.Err).Should(failure)
		pointer := t.Pointer(ctx, config)

		By("booting again from the full disk, with another address")
		machine.ChangeAddress()
		Expect(machine.PowerOn(ctx)).To(Succeed())
		Eventually(ctx, machine.Off()).Should(BeClosed())
		Expect(machine.Err()).To(failure)
		Expect(machine.When(baremetal.UnitsStarted)).To(BeZero(), "systemd never started on a half-configured host")
		Expect(listNodes(ctx, config)).To(HaveLen(1), "pre-registered")
		node := listNodes(ctx, config)[0]
		Expect(node.Status.NodeInfo).To(BeZero())
		Expect(listClientRequests(ctx, node.Name)).To(BeEmpty(), "no kubelet has requested a certificate")
		Expect(runPoolboot(ctx, t, "boots")).To(MatchRegexp(`infra-\S+ +` + t.HostName(0) + ` +infra +Joining `))

		By("removing the configuration from the console, on which an Ignition that fails prints all of it")
		console, err := machine.Console()
		Expect(err).NotTo(HaveOccurred())
		Expect(console).To(ContainSubstring(fullConfig))
		Expect(os.WriteFile(filepath.Join(lab.Dir(), machine.Name(), "console.log"), []byte(redacted.ReplaceAllString(console, "")), 0o600)).To(Succeed())

		By("writing the image with the same user data to a larger disk")
		secret := &corev1.Secret{}
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), secret)).To(Succeed())
		lab.Hardware.SetDiskSize(t.HostName(0), 64<<20)
		_, err = lab.Hardware.Boot(t.HostName(0), secret.Data["value"])
		Expect(err).NotTo(HaveOccurred())
		expectJoined(ctx, t, config)
		expectBornInPool(ctx, t, config, history)
		Expect(t.Pointer(ctx, config)).To(Equal(pointer))
		joined := t.Node(ctx, config)
		Expect(joined.UID).To(Equal(node.UID))
		Expect(joined.Status.Addresses).To(ContainElement(corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: machine.Address()}))
		Eventually(ctx, listEvents(ctx, config, bootstrapv1.EventTokenUsedFromSecondAddress)).Should(HaveLen(1))

		By("booting again after the join, with the first address")
		machine.ChangeAddress()
		Expect(machine.Reset(context.WithoutCancel(ctx))).To(Succeed())
		Eventually(ctx, func() *corev1.Node { return t.Node(ctx, config) }).Should(And(
			HaveField("UID", node.UID),
			HaveField("Status.NodeInfo.BootID", Not(Equal(joined.Status.NodeInfo.BootID))),
			HaveField("Status.Addresses", ContainElement(corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: machine.Address()})),
			Satisfy(util.IsNodeReady)))
		expectBornInPool(ctx, t, config, history)
	}, SpecTimeout(5*time.Minute))
})
