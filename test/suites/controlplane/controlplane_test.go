package controlplane

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

var _ = Describe("A control plane on hosts", Ordered, func() {
	It("has three hosts that Cluster API finds healthy, with a member of etcd each, and two workers", func(ctx SpecContext) {
		plane := controlPlane(ctx)
		Expect(ptr.Deref(plane.Status.Initialization.ControlPlaneInitialized, false)).To(BeTrue())
		Expect(plane.Status.ReadyReplicas).To(HaveValue(BeEquivalentTo(planeHosts)))
		Expect(conditions.IsTrue(plane, controlplanev1.KubeadmControlPlaneEtcdClusterHealthyCondition)).To(BeTrue())
		hosts := controlPlaneHosts(ctx)
		Expect(hosts).To(HaveLen(planeHosts))
		for _, host := range hosts {
			Expect(etcdServes(ctx, host, false)).To(BeTrue(), host.Name())
			Expect(host.Joined()).To(BeTrue(), host.Name())
		}
		Expect(lab.APIServers()).To(Equal(planeHosts))
		for _, config := range t.Configs(ctx, "workers") {
			Eventually(ctx, t.Condition(&config, bootstrapv1.NodeInPoolCondition)).Should(HavePrefix("True"))
			Expect(t.Node(ctx, &config).Labels).To(HaveKeyWithValue("poolboot.io/pool", "worker"))
		}
	}, SpecTimeout(2*time.Minute))

	It("accepts writes while one of its hosts reboots, and loses none", func(ctx SpecContext) {
		host := controlPlaneHosts(ctx)[0]
		w, etcd, boot := startWriter(ctx), watchEtcd(ctx), host.BootID()
		Expect(host.Run(ctx, "systemctl", "reboot", "--no-block")).Error().NotTo(HaveOccurred())
		Eventually(ctx, host.BootID).Should(And(Not(BeEmpty()), Not(Equal(boot))))
		Eventually(ctx, func() bool { return etcdServes(ctx, host, false) }).Should(BeTrue())
		Eventually(ctx, lab.APIServers).Should(Equal(planeHosts))
		expectComplete(ctx)
		writes, pause := w.expectNothingLost(ctx)
		measured("reboot", "%d writes, the longest pause between two %.1f s", writes, pause.Seconds())
		Expect(pause).To(BeNumerically("<", 30*time.Second))
		Expect(etcd.Fewest()).To(Equal(planeHosts - 1))
	}, SpecTimeout(6*time.Minute))

	It("accepts writes when one of its hosts loses power", func(ctx SpecContext) {
		host := controlPlaneHosts(ctx)[1]
		w, etcd := startWriter(ctx), watchEtcd(ctx)
		Expect(host.PowerCut()).To(Succeed())
		Eventually(ctx, etcd.Fewest).Should(Equal(planeHosts - 1))
		Expect(host.PowerOn(context.WithoutCancel(ctx))).To(Succeed())
		Eventually(ctx, func() bool { return etcdServes(ctx, host, false) }).Should(BeTrue())
		expectComplete(ctx)
		writes, pause := w.expectNothingLost(ctx)
		measured("power loss", "%d writes, the longest pause between two %.1f s", writes, pause.Seconds())
		Expect(pause).To(BeNumerically("<", 30*time.Second))
		Expect(etcd.Fewest()).To(Equal(planeHosts - 1))
	}, SpecTimeout(6*time.Minute))

	It("is not healthy for Cluster API while a static Pod of a host fails", func(ctx SpecContext) {
		repair := breakStaticPod(ctx, controlPlaneHosts(ctx)[2], "kube-scheduler")
		healthy := func() bool {
			return conditions.IsTrue(controlPlane(ctx), controlplanev1.KubeadmControlPlaneControlPlaneComponentsHealthyCondition)
		}
		Eventually(ctx, healthy).Should(BeFalse())
		repair(ctx)
		expectComplete(ctx)
	}, SpecTimeout(6*time.Minute))
})
