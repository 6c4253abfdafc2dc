package e2e

import (
	goruntime "runtime"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var _ = Describe("The labels that each kubelet sets", func() {
	It("are on a Node from its first version, and the kubelet corrects a wrong architecture from the inspection", func(ctx SpecContext) {
		wrong := "aarch64"
		if goruntime.GOARCH == "arm64" {
			wrong = "x86_64"
		}
		t := tenant.New(ctx, lab, 1)
		t.SetArchitecture(ctx, t.HostName(0), wrong)
		history, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		expectJoined(ctx, t, config)
		name := config.Status.NodeRef.Name
		first := listVersions(ctx, history, name)[0].Node.Labels
		Expect(first).To(And(HaveKeyWithValue(corev1.LabelHostname, name), HaveKeyWithValue(corev1.LabelOSStable, "linux"),
			HaveKeyWithValue(corev1.LabelArchStable, map[string]string{"aarch64": "arm64", "x86_64": "amd64"}[wrong])))
		Expect(t.Node(ctx, config).Labels).To(And(HaveKeyWithValue(corev1.LabelHostname, name), HaveKeyWithValue(corev1.LabelOSStable, "linux"),
			HaveKeyWithValue(corev1.LabelArchStable, goruntime.GOARCH)))
	})
})
