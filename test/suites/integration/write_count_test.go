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
	It("causes one write of its status and three for each affected pool, and a restarted manager writes nothing", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		storage := t.Pool("storage")
		t.Create(ctx, storage, t.MachineConfig("51-storage", "storage", "/etc/storage", "a"), t.MachineConfig("51-other", "other", "/etc/other", "a"))
		pools := []*poolv1.MachineConfigPool{t.Pool("worker"), t.Pool("infra"), storage}
		getConfigNames := func(ctx context.Context) (names []string, err error) {
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
		Eventually(ctx, getConfigNames).Should(HaveLen(3))
		// listWrites lists the manager's writes in the namespace, except events.
		listWrites := func() (writes []string, err error) {
			requests, err := lab.Management.Requests()
			for _, r := range requests {
				byManager := strings.HasSuffix(r.User.Name, ":poolboot-manager") && r.Object.Namespace == t.Namespace && r.Object.Resource != "events"
				if byManager && r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" {
					writes = append(writes, strings.TrimSuffix(r.Verb+" "+r.Object.Resource+"/"+r.Object.Subresource, "/"))
				}
			}
			return writes, err
		}
		done := 0
		since := func() ([]string, error) {
			all, err := listWrites()
			return all[done:], err
		}
		// The API server logs a write after it answers.
		settle := func() {
			GinkgoHelper()
			Eventually(ctx, func(g Gomega) {
				all, err := listWrites()
				g.Expect(err).NotTo(HaveOccurred())
				done = len(all)
				g.Consistently(ctx, since).WithTimeout(time.Second).Should(BeEmpty())
			}).Should(Succeed())
		}
		settle()

		for _, change := range []struct {
			name, role string
			affected   int
		}{{"51-storage", "storage", 1}, {"00-worker", "worker", 3}, {"51-other", "other", 0}} {
			before, err := getConfigNames(ctx)
			Expect(err).NotTo(HaveOccurred())
			config := t.MachineConfig(change.name, change.role, "/etc/changed", "b")
			current := &poolv1.MachineConfig{}
			Expect(lab.ManagementClient.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: change.name}, current)).To(Succeed())
			current.Spec = config.Spec
			Expect(lab.ManagementClient.Update(ctx, current)).To(Succeed())
			want := []string{"patch machineconfigs/status"}
			for range change.affected {
				want = append(want, "create machineconfigs", "patch machineconfigpools/status", "patch machineconfigpools")
			}
			Eventually(ctx, since).Should(ConsistOf(want), change.name)
			Consistently(ctx, since).WithTimeout(time.Second).Should(ConsistOf(want), change.name)
			after, err := getConfigNames(ctx)
			Expect(err).NotTo(HaveOccurred())
			same := 0
			for i := range after {
				if before[i] == after[i] {
					same++
				}
			}
			Expect(same).To(Equal(len(pools) - change.affected))
			settle()
		}

		Expect(lab.Manager.Kill()).To(Succeed())
		Expect(lab.Manager.Start(ctx)).To(Succeed())
		Consistently(ctx, since).Should(BeEmpty())
	})
})
