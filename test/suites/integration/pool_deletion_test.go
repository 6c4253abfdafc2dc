package integration

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var _ = Describe("Deletion of a pool", func() {
	It("is refused while a Machine is recorded in it or another pool inherits from it, unless forced", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		waitForConfiguration(ctx, t, config)
		remove := func(pool string) (string, error) {
			return lab.Kubectl(ctx, lab.Management, "delete", "pbpool", pool, "--namespace", t.Namespace)
		}

		_, err := remove("infra")
		Expect(err).To(MatchError(And(ContainSubstring(t.Machine(ctx, config).Name), ContainSubstring(poolv1.ForceDeleteAnnotation))))
		_, err = remove("worker")
		Expect(err).To(MatchError(ContainSubstring("inherit from it: infra")))

		_, err = lab.Kubectl(ctx, lab.Management, "annotate", "pbpool", "infra", poolv1.ForceDeleteAnnotation+"=true", "--namespace", t.Namespace)
		Expect(err).NotTo(HaveOccurred())
		Expect(remove("infra")).To(ContainSubstring("deleted"))
		Expect(remove("worker")).To(ContainSubstring("deleted"))
	})

	It("is allowed when its Cluster is deleted", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		waitForConfiguration(ctx, t, t.Config(ctx, "infra"))
		worker := t.Pool("worker")
		Expect(lab.ManagementClient.Delete(ctx, worker)).NotTo(Succeed())
		Expect(lab.ManagementClient.Delete(ctx, t.Cluster)).To(Succeed())
		for _, pool := range []*poolv1.MachineConfigPool{worker, t.Pool("infra")} {
			Expect(lab.ManagementClient.Delete(ctx, pool)).To(Succeed())
		}
	})
})
