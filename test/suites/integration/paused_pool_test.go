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
	It("keeps rendering, shows that it is paused, and boots new Machines with the current config of its Nodes, also after losing its status", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		infra := t.Pool("infra")
		Eventually(ctx, getSources(infra)).Should(HaveLen(2))
		deployment := t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		waitForConfiguration(ctx, t, t.Config(ctx, "infra"))
		current := infra.Status.Configuration.Name
		setPaused := func(paused string) {
			GinkgoHelper()
			_, err := lab.Kubectl(ctx, lab.Management, "patch", "pbpool", "infra", "--namespace", t.Namespace, "--type", "merge", "-p", `{"spec":{"paused":`+paused+`}}`)
			Expect(err).NotTo(HaveOccurred())
		}

		setPaused("true")
		t.Create(ctx, t.MachineConfig("60-waits", "infra", "/etc/waits", "waits"))
		Eventually(ctx, getPoolCondition(infra, poolv1.UpdatedCondition)).Should(And(HavePrefix("False RolloutPaused"), ContainSubstring("kubectl poolboot rollout resume infra")))
		Expect(infra.Status.ObservedGeneration).To(Equal(infra.Generation))
		Eventually(ctx, func() ([]string, error) {
			table, err := lab.Kubectl(ctx, lab.Management, "get", "pbpool", "infra", "--namespace", t.Namespace, "--no-headers")
			return strings.Fields(table), err
		}).Should(HaveExactElements("infra", "False", "RolloutPaused", "1", "0", "0", Not(BeEmpty())), "the last column is the age")
		message, err := getPoolCondition(infra, poolv1.UpdatedCondition)(ctx)
		Expect(err).NotTo(HaveOccurred())
		var rendered poolv1.MachineConfigList
		Expect(lab.ManagementClient.List(ctx, &rendered, client.InNamespace(t.Namespace), client.MatchingLabels{poolv1.RenderedForLabel: "infra"})).To(Succeed())
		Expect(rendered.Items).To(ContainElement(HaveField("Name", Satisfy(func(name string) bool {
			return name != current && strings.Contains(message, name+" waits")
		}))))

		By("applying the pool without the annotation with what it hands out")
		Expect(infra.Annotations[poolv1.PausedConfigurationAnnotation]).To(Equal(current))
		manifest := func() string {
			path := filepath.Join(GinkgoT().TempDir(), "infra.yaml")
			Expect(os.WriteFile(path, fmt.Appendf(nil, "apiVersion: poolboot.io/v1alpha1\nkind: MachineConfigPool\n"+
				"metadata: {name: infra, namespace: %s}\nspec: {paused: true, clusterName: %s, poolRole: infra}\n", t.Namespace, infra.Spec.ClusterName), 0o600)).To(Succeed())
			return path
		}
		for _, arguments := range [][]string{{"--server-side", "--force-conflicts", "--field-manager=gitops"}, {}, {}} {
			out, err := lab.Kubectl(ctx, lab.Management, append([]string{"apply", "-f", manifest()}, arguments...)...)
			Expect(err).NotTo(HaveOccurred(), out)
			Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(infra), infra)).To(Succeed())
			Expect(infra.Annotations[poolv1.PausedConfigurationAnnotation]).To(Equal(current))
		}

		By("clearing its status")
		t.Pause(ctx, true)
		Eventually(ctx, func() error {
			if err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(infra), infra); err != nil {
				return err
			}
			infra.Status = poolv1.MachineConfigPoolStatus{}
			return lab.ManagementClient.Status().Update(ctx, infra)
		}).Should(Succeed(), "the update can conflict with the manager's")
		t.Pause(ctx, false)
		getConfigName := func(ctx context.Context) (string, error) {
			if err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(infra), infra); err != nil || !infra.Status.Configuration.IsDefined() {
				return "", err
			}
			return infra.Status.Configuration.Name, nil
		}
		Eventually(ctx, getConfigName).Should(Equal(current))
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
		t.Scale(ctx, deployment, 2)
		t.AddHost(ctx, t.HostName(1))
		Eventually(ctx, func() (booted []string) {
			for _, config := range t.Configs(ctx, "infra") {
				booted = append(booted, config.Status.Boot.ServedConfiguration.Name)
			}
			return booted
		}).Should(Equal([]string{current, current}))

		setPaused("false")
		Eventually(ctx, getConfigName).ShouldNot(Equal(current))
		getAnnotations := func(ctx context.Context) (map[string]string, error) {
			_, err := getConfigName(ctx)
			return infra.Annotations, err
		}
		Eventually(ctx, getAnnotations).ShouldNot(HaveKey(poolv1.PausedConfigurationAnnotation))

		By("setting the annotation although it is not paused")
		_, err = lab.Kubectl(ctx, lab.Management, "annotate", "pbpool", "infra", "--namespace", t.Namespace, poolv1.PausedConfigurationAnnotation+"="+current)
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, getAnnotations).ShouldNot(HaveKey(poolv1.PausedConfigurationAnnotation))
	})
})
