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
		Eventually(ctx, rendersFrom(infra)).Should(Equal([]string{"00-worker", "51-infra"}))
	})
	handedOut := func(ctx context.Context) (string, error) {
		if err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(infra), infra); err != nil || !infra.Status.Configuration.IsDefined() {
			return "", err
		}
		return infra.Status.Configuration.Name, nil
	}
	rendered := func(name string) func(context.Context) (*poolv1.MachineConfig, error) {
		return func(ctx context.Context) (*poolv1.MachineConfig, error) {
			config := &poolv1.MachineConfig{}
			return config, lab.ManagementClient.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: name}, config)
		}
	}
	left := func(ctx context.Context) ([]string, error) {
		var list poolv1.MachineConfigList
		err := lab.ManagementClient.List(ctx, &list, client.InNamespace(t.Namespace), client.MatchingLabels{poolv1.RenderedForLabel: "infra"})
		var names []string
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
		return names, err
	}
	// roll changes the worker pool n times; each time the infra pool hands out something else.
	roll := func(ctx context.Context, n int) {
		GinkgoHelper()
		for i := range n {
			before, err := handedOut(ctx)
			Expect(err).NotTo(HaveOccurred())
			change := t.MachineConfig("90-change", "worker", "/etc/change", fmt.Sprint(i))
			if i == 0 {
				t.Create(ctx, change)
			} else {
				current := &poolv1.MachineConfig{}
				Expect(lab.ManagementClient.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: change.Name}, current)).To(Succeed())
				current.Spec = change.Spec
				Expect(lab.ManagementClient.Update(ctx, current)).To(Succeed())
			}
			Eventually(ctx, handedOut).ShouldNot(Equal(before))
		}
	}

	It("stay as long as a Machine runs them, go when nothing does, and come back under their name when a change is taken back", func(ctx SpecContext) {
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		asking(ctx, t, t.Config(ctx, "infra"))
		booted, err := handedOut(ctx)
		Expect(err).NotTo(HaveOccurred())
		first, err := rendered(booted)(ctx)
		Expect(err).NotTo(HaveOccurred())

		roll(ctx, 8)
		// The pool's own, the newest five that nothing uses, and that of the Machine.
		Eventually(ctx, left).Should(And(HaveLen(7), ContainElement(booted)))
		own := t.Pointer(ctx, t.Config(ctx, "infra"))
		Consistently(ctx, func() (int, error) { code, _, err := get(ctx, own, own.URL); return code, err }).Should(Equal(200))

		Expect(lab.ManagementClient.Delete(ctx, t.MachineConfig("90-change", "worker", "", ""))).To(Succeed())
		Eventually(ctx, handedOut).Should(Equal(booted))
		again, err := rendered(booted)(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(again.UID).To(Equal(first.UID))
	})

	It("come back under their name when nothing used them and they were deleted", func(ctx SpecContext) {
		name, err := handedOut(ctx)
		Expect(err).NotTo(HaveOccurred())
		first, err := rendered(name)(ctx)
		Expect(err).NotTo(HaveOccurred())
		// Which is older is told by seconds.
		Eventually(ctx, time.Now).Should(BeTemporally(">", first.CreationTimestamp.Add(time.Second)))
		roll(ctx, 8)
		Eventually(ctx, left).Should(And(HaveLen(6), Not(ContainElement(name))))
		Expect(lab.ManagementClient.Delete(ctx, t.MachineConfig("90-change", "worker", "", ""))).To(Succeed())
		Eventually(ctx, handedOut).Should(Equal(name))
		Eventually(ctx, rendered(name)).Should(HaveField("Spec", Equal(first.Spec)))
	})

	It("are made again byte for byte when a person deletes them, and nothing degrades", func(ctx SpecContext) {
		name, err := handedOut(ctx)
		Expect(err).NotTo(HaveOccurred())
		first, err := rendered(name)(ctx)
		Expect(err).NotTo(HaveOccurred())
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		asking(ctx, t, config)

		Expect(lab.ManagementClient.Delete(ctx, first)).To(Succeed())
		Eventually(ctx, rendered(name)).Should(And(HaveField("UID", Not(Equal(first.UID))), HaveField("Spec", Equal(first.Spec))))
		own := t.Pointer(ctx, config)
		Eventually(ctx, func() (int, error) { code, _, err := get(ctx, own, own.URL); return code, err }).Should(Equal(200))
		for _, kind := range []string{poolv1.DegradedCondition, poolv1.RenderDegradedCondition} {
			Consistently(ctx, poolCondition(infra, kind)).WithTimeout(time.Second / 2).Should(HavePrefix("False"))
		}
	})

	It("may be deleted by hand again and again while a host boots with them: it boots, and nothing degrades", func(ctx SpecContext) {
		name, err := handedOut(ctx)
		Expect(err).NotTo(HaveOccurred())
		first, err := rendered(name)(ctx)
		Expect(err).NotTo(HaveOccurred())
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		host := func() error {
			if !config.Status.HostRef.IsDefined() {
				return errors.New("no host yet")
			}
			_, err := hosts.of(client.ObjectKey{Namespace: config.Status.HostRef.Namespace, Name: config.Status.HostRef.Name}).got()
			return err
		}
		deletions := 0
		Eventually(ctx, func(g Gomega) {
			if lab.ManagementClient.Delete(ctx, &poolv1.MachineConfig{ObjectMeta: first.ObjectMeta}) == nil {
				deletions++
			}
			Expect(poolCondition(infra, poolv1.DegradedCondition)(ctx)).To(HavePrefix("False"))
			g.Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)).To(Succeed())
			g.Expect(host()).To(Succeed())
		}).WithPolling(20 * time.Millisecond).Should(Succeed())
		Expect(deletions).To(BeNumerically(">", 3))
		Expect(config.Status.Configuration.Name).To(Equal(name))

		By("telling of it as of one thing that comes again, once the pool stays as it is")
		Eventually(ctx, func() ([]eventsv1.Event, error) {
			_ = lab.ManagementClient.Delete(ctx, &poolv1.MachineConfig{ObjectMeta: first.ObjectMeta})
			var list eventsv1.EventList
			err := lab.ManagementClient.List(ctx, &list, client.InNamespace(t.Namespace))
			return list.Items, err
		}).Should(ContainElement(And(HaveField("Regarding.Name", "infra"), HaveField("Reason", poolv1.RenderedReason), HaveField("Series", Not(BeNil())))))
		Eventually(ctx, rendered(name)).Should(HaveField("Spec", Equal(first.Spec)))
	})

	It("that a host was told to fetch and that can't be made again leave no host waiting: it gets what its pool hands out now", func(ctx SpecContext) {
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		asking(ctx, t, config)
		old, err := handedOut(ctx)
		Expect(err).NotTo(HaveOccurred())
		roll(ctx, 1)
		Expect(lab.ManagementClient.Delete(ctx, &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: old}})).To(Succeed())

		current, err := handedOut(ctx)
		Expect(err).NotTo(HaveOccurred())
		own := t.Pointer(ctx, config)
		Eventually(ctx, func() (string, error) { _, body, err := get(ctx, own, own.URL); return string(body), err }).Should(ContainSubstring(current))
		Expect(poolCondition(infra, poolv1.DegradedCondition)(ctx)).To(HavePrefix("False"))
	})

	It("that a paused pool hands out can't be deleted by hand", func(ctx SpecContext) {
		name, err := handedOut(ctx)
		Expect(err).NotTo(HaveOccurred())
		before := infra.DeepCopy()
		infra.Spec.Paused = new(true)
		Expect(lab.ManagementClient.Patch(ctx, infra, client.MergeFrom(before))).To(Succeed())
		_, err = lab.Kubectl(ctx, lab.Management, "delete", "pbmconf", name, "--namespace", t.Namespace)
		Expect(err).To(MatchError(ContainSubstring("spec.paused to false")))
	})
})
