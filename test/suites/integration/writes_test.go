package integration

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var _ = Describe("A change of a MachineConfig", func() {
	It("costs two writes for each pool that it concerns, and a manager that starts again writes nothing", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		storage := t.Pool("storage")
		t.Create(ctx, storage, t.MachineConfig("51-storage", "storage", "/etc/storage", "a"), t.MachineConfig("51-other", "other", "/etc/other", "a"))
		pools := []*poolv1.MachineConfigPool{t.Pool("worker"), t.Pool("infra"), storage}
		handedOut := func(ctx context.Context) (names []string, err error) {
			for _, pool := range pools {
				if err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(pool), pool); err != nil {
					return nil, err
				}
				if pool.Status.Configuration.IsDefined() {
					names = append(names, pool.Status.Configuration.Name)
				}
			}
			return names, nil
		}
		Eventually(ctx, handedOut).Should(HaveLen(3))
		// writes are those of the manager in the namespace, without events.
		writes := func() (writes []string, err error) {
			requests, err := lab.Management.Requests()
			for _, r := range requests {
				is := strings.HasSuffix(r.User.Name, ":poolboot-manager") && r.Object.Namespace == t.Namespace && r.Object.Resource != "events"
				if is && r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" {
					writes = append(writes, strings.TrimSuffix(r.Verb+" "+r.Object.Resource+"/"+r.Object.Subresource, "/"))
				}
			}
			return writes, err
		}
		done := 0
		since := func() ([]string, error) {
			all, err := writes()
			return all[done:], err
		}
		// The audit log has a write a moment after everybody else sees it.
		settle := func() {
			GinkgoHelper()
			Eventually(ctx, func(g Gomega) {
				all, err := writes()
				g.Expect(err).NotTo(HaveOccurred())
				done = len(all)
				g.Consistently(ctx, since).WithTimeout(time.Second).Should(BeEmpty())
			}).Should(Succeed())
		}
		settle()

		for _, change := range []struct {
			name, role string
			concerned  int
		}{{"51-storage", "storage", 1}, {"00-worker", "worker", 3}, {"51-other", "other", 0}} {
			before, err := handedOut(ctx)
			Expect(err).NotTo(HaveOccurred())
			config := t.MachineConfig(change.name, change.role, "/etc/changed", "b")
			current := &poolv1.MachineConfig{}
			Expect(lab.ManagementClient.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: change.name}, current)).To(Succeed())
			current.Spec = config.Spec
			Expect(lab.ManagementClient.Update(ctx, current)).To(Succeed())
			var needed []string
			for range change.concerned {
				needed = append(needed, "create machineconfigs", "patch machineconfigpools/status")
			}
			Eventually(ctx, since).Should(ConsistOf(needed), change.name)
			Consistently(ctx, since).WithTimeout(time.Second).Should(ConsistOf(needed), change.name)
			after, err := handedOut(ctx)
			Expect(err).NotTo(HaveOccurred())
			same := 0
			for i := range after {
				if before[i] == after[i] {
					same++
				}
			}
			Expect(same).To(Equal(len(pools) - change.concerned))
			settle()
		}

		Expect(lab.Manager.Kill()).To(Succeed())
		Expect(lab.Manager.Start(ctx)).To(Succeed())
		Consistently(ctx, since).Should(BeEmpty())
	})
})
