package e2e

import (
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var _ = Describe("A host's token", func() {
	It("is replaced on request, and the host boots with the new token", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
		old := t.Pointer(ctx, config)
		t.Rotate(ctx, config)
		pointer := t.Pointer(ctx, config)
		Expect(pointer.URL).To(Equal(old.URL))
		Expect(pointer.Token).NotTo(Equal(old.Token))
		Eventually(ctx, fetchStatus).WithArguments(old).Should(Equal(401))
		Eventually(ctx, listEvents(ctx, config, bootstrapv1.EventTokenRotated)).Should(HaveLen(1))
		t.AddHost(ctx, t.HostName(0))
		expectJoined(ctx, t, config)
	}, SpecTimeout(3*time.Minute))

	It("expires a day after the host was provisioned without joining, and rotation replaces it", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
		pointer := t.Pointer(ctx, config)
		assignPausedHost(ctx, t, config)
		Eventually(ctx, fetchStatus).WithArguments(pointer).Should(Equal(200))

		host := &bmov1alpha1.BareMetalHost{}
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: t.HostName(0)}, host)).To(Succeed())
		before := host.DeepCopy()
		host.Status.Provisioning.State = bmov1alpha1.StateProvisioned
		host.Status.OperationHistory.Provision.End = metav1.NewTime(time.Now().Add(-25 * time.Hour))
		Expect(lab.ManagementClient.Status().Patch(ctx, host, client.MergeFrom(before))).To(Succeed())
		Eventually(ctx, fetchStatus).WithArguments(pointer).Should(Equal(401))
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(And(HavePrefix("False"), ContainSubstring(bootstrapv1.RotateTokenAnnotation)))
		Eventually(ctx, listEvents(ctx, config, bootstrapv1.TokenExpiredReason)).Should(HaveLen(1))
		Expect(runPoolboot(ctx, t, "boots")).To(MatchRegexp(config.Name + ` +` + t.HostName(0) + ` (?s:.*)` + bootstrapv1.RotateTokenAnnotation))

		t.Rotate(ctx, config)
		Expect(t.Pointer(ctx, config).Token).NotTo(Equal(pointer.Token))
		Eventually(ctx, fetchStatus).WithArguments(t.Pointer(ctx, config)).Should(Equal(200))
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
		Expect(fetchStatus(ctx, pointer)).To(Equal(401))
	}, SpecTimeout(3*time.Minute))
})
