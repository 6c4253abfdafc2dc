package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var _ = Describe("A paused pool", func() {
	It("goes on rendering, shows that as OpenShift's does, and new Machines boot with what its Nodes run, also when its status was lost", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		infra := t.Pool("infra")
		Eventually(ctx, rendersFrom(infra)).Should(HaveLen(2))
		deployment := t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		asking(ctx, t, t.Config(ctx, "infra"))
		runs := infra.Status.Configuration.Name
		pause := func(is string) {
			GinkgoHelper()
			_, err := lab.Kubectl(ctx, lab.Management, "patch", "pbpool", "infra", "--namespace", t.Namespace, "--type", "merge", "-p", `{"spec":{"paused":`+is+`}}`)
			Expect(err).NotTo(HaveOccurred())
		}

		pause("true")
		t.Create(ctx, t.MachineConfig("60-waits", "infra", "/etc/waits", "waits"))
		Eventually(ctx, poolCondition(infra, poolv1.UpdatedCondition)).Should(And(HavePrefix("False RolloutPaused"), ContainSubstring("set spec.paused to false")))
		Expect(infra.Status.ObservedGeneration).To(Equal(infra.Generation))
		Eventually(ctx, func() ([]string, error) {
			table, err := lab.Kubectl(ctx, lab.Management, "get", "pbpool", "infra", "--namespace", t.Namespace, "--no-headers")
			return strings.Fields(table), err
		}).Should(HaveExactElements("infra", runs, "False", "False", "False", "1", "0", "0", "0", Not(BeEmpty())), "the last is its age")
		why, err := poolCondition(infra, poolv1.UpdatedCondition)(ctx)
		Expect(err).NotTo(HaveOccurred())
		var rendered poolv1.MachineConfigList
		Expect(lab.ManagementClient.List(ctx, &rendered, client.InNamespace(t.Namespace), client.MatchingLabels{poolv1.RenderedForLabel: "infra"})).To(Succeed())
		Expect(rendered.Items).To(ContainElement(HaveField("Name", Satisfy(func(name string) bool {
			return name != runs && strings.Contains(why, name+" waits")
		}))))

		By("being applied by those who do not say what it hands out")
		Expect(infra.Spec.PausedConfiguration.Name).To(Equal(runs))
		manifest := func(paused bool, more string) string {
			path := filepath.Join(GinkgoT().TempDir(), "infra.yaml")
			Expect(os.WriteFile(path, fmt.Appendf(nil, "apiVersion: pool.cluster.x-k8s.io/v1alpha1\nkind: MachineConfigPool\n"+
				"metadata: {name: infra, namespace: %s}\nspec: {paused: %t, %s clusterName: %s, poolRole: infra}\n", t.Namespace, paused, more, infra.Spec.ClusterName), 0o600)).To(Succeed())
			return path
		}
		for _, arguments := range [][]string{{"--server-side", "--force-conflicts", "--field-manager=gitops"}, {}, {}} {
			out, err := lab.Kubectl(ctx, lab.Management, append([]string{"apply", "-f", manifest(true, "")}, arguments...)...)
			Expect(err).NotTo(HaveOccurred(), out)
			Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(infra), infra)).To(Succeed())
			Expect(infra.Spec.PausedConfiguration.Name).To(Equal(runs))
		}

		By("losing its status")
		t.Pause(ctx, true)
		Eventually(ctx, func() error {
			if err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(infra), infra); err != nil {
				return err
			}
			infra.Status = poolv1.MachineConfigPoolStatus{}
			return lab.ManagementClient.Status().Update(ctx, infra)
		}).Should(Succeed(), "the manager writes it too")
		t.Pause(ctx, false)
		handedOut := func(ctx context.Context) (string, error) {
			if err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(infra), infra); err != nil || !infra.Status.Configuration.IsDefined() {
				return "", err
			}
			return infra.Status.Configuration.Name, nil
		}
		Eventually(ctx, handedOut).Should(Equal(runs))
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
		t.Scale(ctx, deployment, 2)
		t.AddHost(ctx, t.HostName(1))
		Eventually(ctx, func() (booted []string) {
			for _, config := range t.Configs(ctx, "infra") {
				booted = append(booted, config.Status.Configuration.Name)
			}
			return booted
		}).Should(Equal([]string{runs, runs}))

		pause("false")
		Eventually(ctx, handedOut).ShouldNot(Equal(runs))
		Eventually(ctx, func() (poolv1.RenderedConfigReference, error) {
			_, err := handedOut(ctx)
			return infra.Spec.PausedConfiguration, err
		}).
			Should(BeZero())

		By("being told what to hand out although it is not paused")
		out, err := lab.Kubectl(ctx, lab.Management, "apply", "--server-side", "--force-conflicts", "--field-manager=gitops", "-f", manifest(false, "pausedConfiguration: {name: "+runs+"},"))
		Expect(fmt.Sprint(out, err)).To(ContainSubstring("spec.pausedConfiguration: Forbidden: pausedConfiguration is set only while paused is true"))
	})
})
