package integration

import (
	"context"
	"errors"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var _ = Describe("Rendered configs", func() {
	var (
		t     *tenant.Tenant
		infra *poolv1.MachineConfigPool
	)
	BeforeEach(func(ctx SpecContext) {
		t = tenant.New(ctx, lab, 1)
		infra = t.Pool("infra")
		Eventually(ctx, getSources(infra)).Should(Equal([]string{"00-worker", "51-infra"}))
	})
	getConfigName := func(ctx context.Context) (string, error) {
		if err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(infra), infra); err != nil || !infra.Status.Configuration.IsDefined() {
			return "", err
		}
		return infra.Status.Configuration.Name, nil
	}
	getRendered := func(name string) func(context.Context) (*poolv1.MachineConfig, error) {
		return func(ctx context.Context) (*poolv1.MachineConfig, error) {
			config := &poolv1.MachineConfig{}
			return config, lab.ManagementClient.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: name}, config)
		}
	}
	listRendered := func(ctx context.Context) ([]string, error) {
		var list poolv1.MachineConfigList
		err := lab.ManagementClient.List(ctx, &list, client.InNamespace(t.Namespace), client.MatchingLabels{poolv1.RenderedForLabel: "infra"})
		var names []string
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
		return names, err
	}
	// changeWorkerPool changes the worker pool n times, and waits each time for a new rendered config of the pool
	// infra.
	changeWorkerPool := func(ctx context.Context, n int) {
		GinkgoHelper()
		for i := range n {
			before, err := getConfigName(ctx)
			Expect(err).NotTo(HaveOccurred())
			change := t.MachineConfig("90-change", "worker", "/etc/change", fmt.Sprint(i))
			if i == 0 {
				t.Create(ctx, change)
			} else {
				current := &poolv1.MachineConfig{}
				Expect(lab.ManagementClient.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: change.Name}, current)).To(Succeed())
				changed := current.DeepCopy()
				changed.Spec = change.Spec
				Expect(lab.ManagementClient.Patch(ctx, changed, client.MergeFrom(current))).To(Succeed(), "an update can conflict with the manager's")
			}
			Eventually(ctx, getConfigName).ShouldNot(Equal(before))
		}
	}

	It("are kept while a Machine runs them, deleted when unused, and used again under the same name when a change is reverted", func(ctx SpecContext) {
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		waitForConfiguration(ctx, t, t.Config(ctx, "infra"))
		booted, err := getConfigName(ctx)
		Expect(err).NotTo(HaveOccurred())
		first, err := getRendered(booted)(ctx)
		Expect(err).NotTo(HaveOccurred())

		changeWorkerPool(ctx, 8)
		// The pool's current one, the newest five unused, and the Machine's.
		Eventually(ctx, listRendered).Should(And(HaveLen(7), ContainElement(booted)))
		own := t.Pointer(ctx, t.Config(ctx, "infra"))
		Consistently(ctx, func() (int, error) { code, _, err := getURL(ctx, own, own.URL); return code, err }).Should(Equal(200))

		Expect(lab.ManagementClient.Delete(ctx, t.MachineConfig("90-change", "worker", "", ""))).To(Succeed())
		Eventually(ctx, getConfigName).Should(Equal(booted))
		again, err := getRendered(booted)(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(again.UID).To(Equal(first.UID))
	})

	It("get the same name and content when they are rendered again after their deletion", func(ctx SpecContext) {
		name, err := getConfigName(ctx)
		Expect(err).NotTo(HaveOccurred())
		first, err := getRendered(name)(ctx)
		Expect(err).NotTo(HaveOccurred())
		// Creation timestamps have a resolution of one second.
		Eventually(ctx, time.Now).Should(BeTemporally(">", first.CreationTimestamp.Add(time.Second)))
		changeWorkerPool(ctx, 8)
		Eventually(ctx, listRendered).Should(And(HaveLen(6), Not(ContainElement(name))))
		Expect(lab.ManagementClient.Delete(ctx, t.MachineConfig("90-change", "worker", "", ""))).To(Succeed())
		Eventually(ctx, getConfigName).Should(Equal(name))
		Eventually(ctx, getRendered(name)).Should(HaveField("Spec", Equal(first.Spec)))
	})

	It("are rendered again with the same content when a user deletes them, and the pool is not degraded", func(ctx SpecContext) {
		name, err := getConfigName(ctx)
		Expect(err).NotTo(HaveOccurred())
		first, err := getRendered(name)(ctx)
		Expect(err).NotTo(HaveOccurred())
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		waitForConfiguration(ctx, t, config)

		Expect(lab.ManagementClient.Delete(ctx, first)).To(Succeed())
		Eventually(ctx, getRendered(name)).Should(And(HaveField("UID", Not(Equal(first.UID))), HaveField("Spec", Equal(first.Spec))))
		own := t.Pointer(ctx, config)
		Eventually(ctx, func() (int, error) { code, _, err := getURL(ctx, own, own.URL); return code, err }).Should(Equal(200))
		for _, kind := range []string{poolv1.DegradedCondition, poolv1.RenderDegradedCondition} {
			Consistently(ctx, getPoolCondition(infra, kind)).WithTimeout(time.Second / 2).Should(HavePrefix("False"))
		}
	})

	It("can be deleted repeatedly while a host boots with them: the host boots, and the pool is not degraded", func(ctx SpecContext) {
		name, err := getConfigName(ctx)
		Expect(err).NotTo(HaveOccurred())
		first, err := getRendered(name)(ctx)
		Expect(err).NotTo(HaveOccurred())
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		host := func() error {
			if !config.Status.HostRef.IsDefined() {
				return errors.New("no host yet")
			}
			_, err := hosts.get(client.ObjectKey{Namespace: config.Status.HostRef.Namespace, Name: config.Status.HostRef.Name}).configuration()
			return err
		}
		deletions := 0
		Eventually(ctx, func(g Gomega) {
			if lab.ManagementClient.Delete(ctx, &poolv1.MachineConfig{ObjectMeta: first.ObjectMeta}) == nil {
				deletions++
			}
			Expect(getPoolCondition(infra, poolv1.DegradedCondition)(ctx)).To(HavePrefix("False"))
			g.Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)).To(Succeed())
			g.Expect(host()).To(Succeed())
		}).WithPolling(20 * time.Millisecond).Should(Succeed())
		Expect(deletions).To(BeNumerically(">", 3))
		Expect(config.Status.Boot.ServedConfiguration.Name).To(Equal(name))

		By("reporting further deletions as a series of one event")
		Eventually(ctx, func() ([]eventsv1.Event, error) {
			_ = lab.ManagementClient.Delete(ctx, &poolv1.MachineConfig{ObjectMeta: first.ObjectMeta})
			var list eventsv1.EventList
			err := lab.ManagementClient.List(ctx, &list, client.InNamespace(t.Namespace))
			return list.Items, err
		}).Should(ContainElement(And(HaveField("Regarding.Name", "infra"), HaveField("Reason", poolv1.RenderedReason), HaveField("Series", Not(BeNil())))))
		Eventually(ctx, getRendered(name)).Should(HaveField("Spec", Equal(first.Spec)))
	})

	It("that a booting host refers to and that can't be rendered again are replaced by the pool's current config", func(ctx SpecContext) {
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		waitForConfiguration(ctx, t, config)
		old, err := getConfigName(ctx)
		Expect(err).NotTo(HaveOccurred())
		changeWorkerPool(ctx, 1)
		Expect(lab.ManagementClient.Delete(ctx, &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: old}})).To(Succeed())

		current, err := getConfigName(ctx)
		Expect(err).NotTo(HaveOccurred())
		own := t.Pointer(ctx, config)
		Eventually(ctx, func() (string, error) { _, body, err := getURL(ctx, own, own.URL); return string(body), err }).Should(ContainSubstring(current))
		Expect(getPoolCondition(infra, poolv1.DegradedCondition)(ctx)).To(HavePrefix("False"))
	})

	It("of a paused pool can't be deleted by a user", func(ctx SpecContext) {
		name, err := getConfigName(ctx)
		Expect(err).NotTo(HaveOccurred())
		before := infra.DeepCopy()
		infra.Spec.Paused = new(true)
		Expect(lab.ManagementClient.Patch(ctx, infra, client.MergeFrom(before))).To(Succeed())
		_, err = lab.Kubectl(ctx, lab.Management, "delete", "pbmconf", name, "--namespace", t.Namespace)
		Expect(err).To(MatchError(ContainSubstring("kubectl poolboot rollout resume infra")))
	})
})
