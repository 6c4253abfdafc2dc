package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// arrivals returns a patch of status with addresses in status.requests.
func arrivals(addresses ...bootstrapv1.TokenAddress) string {
	GinkgoHelper()
	recorded, err := json.Marshal(addresses)
	Expect(err).NotTo(HaveOccurred())
	return `{"requests":{"addresses":` + string(recorded) + `}}`
}

// many returns addresses of a token.
func many(count int, token string) (addresses []bootstrapv1.TokenAddress) {
	for i := range count {
		addresses = append(addresses, bootstrapv1.TokenAddress{Address: fmt.Sprintf("2001:db8::%d", i), FirstUsedTime: metav1.NowMicro(), Token: token})
	}
	return addresses
}

// asConfigServer returns a client with the rights of the config server.
func asConfigServer() client.Client {
	GinkgoHelper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	own, err := client.New(config, client.Options{Scheme: admin.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	return own
}

var _ = Describe("An attacker with the rights of the config server", func() {
	var taken client.Client
	BeforeEach(func() { taken = asConfigServer() })
	patched := func(ctx SpecContext, object client.Object, status string) error {
		return taken.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(`{"status":`+status+`}`)))
	}

	It("can record requests of a host, and write no other status", func(ctx SpecContext) {
		m := newMachine(ctx, "taken-over")
		m.config.Status.Boot.PreparedTime = &metav1.MicroTime{Time: metav1.Now().Time}
		m.config.Status.Boot.ServedConfiguration.Name = m.rendered
		m.config.Status.ObservedGeneration = 1
		m.config.Status.Update = bootstrapv1.UpdateStatus{
			Desired: bootstrapv1.ConfigurationReference{Name: m.rendered}, DesiredRevision: strings.Repeat("a", 64), RegisteredTime: &metav1.MicroTime{Time: metav1.Now().Time},
		}
		now, digits := metav1.NowMicro(), m.config.Annotations[bootstrapv1.TokenHashAnnotation][:bootstrapv1.TokenHashPrefixLength]
		from := func(address, token string) bootstrapv1.TokenAddress {
			return bootstrapv1.TokenAddress{Address: address, FirstUsedTime: now, Token: token}
		}
		own, old, added := from("192.0.2.7", digits), from("192.0.2.8", "0123456789abcdef"), from("192.0.2.9", digits)
		earlier, others := own, own
		earlier.FirstUsedTime = metav1.NewMicroTime(now.Add(-time.Hour))
		others.Token = old.Token
		m.config.Status.Requests.Addresses = []bootstrapv1.TokenAddress{own, old}
		Expect(admin.Status().Update(ctx, m.config)).To(Succeed())
		for status, refusal := range map[string]string{
			`{"poolRole":"infra"}`:                                             "can only change status.requests",
			`{"nodeRef":{"name":"b","uid":"c"}}`:                               "can only change status.requests",
			`{"observedGeneration":null}`:                                      "can only change status.requests",
			`{"hostAddresses":["192.0.2.9"]}`:                                  "can only change status.requests",
			`{"boot":{"credentialID":"abcdef"}}`:                               "can only change status.requests",
			`{"boot":{"preparedTime":null}}`:                                   "can only change status.requests",
			`{"update":{"desired":{"name":"rendered-other-0"}}}`:               "can only change status.requests",
			`{"update":{"desiredRevision":"` + strings.Repeat("b", 64) + `"}}`: "can only change status.requests",
			`{"update":{"registeredTime":"2030-01-01T00:00:00.000000Z"}}`:      "can only change status.requests",
			`{"update":null}`:                                                  "can only change status.requests",
			`{"reportedAddresses":[{"address":"192.0.2.7","firstUsedTime":"2026-01-01T00:00:00.000000Z"}]}`:                                      "can only change status.requests",
			`{"certificate":{"credentialID":"abcdef","publicKeySHA256":"` + strings.Repeat("b", 64) + `","grantedTime":"2026-01-01T00:00:00Z"}}`: "can only change status.requests",
			// Addresses of the current token cannot be removed or changed.
			`{"requests":null}`: "only add addresses of the recorded token",
			`{"requests":{"addresses":null,"servedTime":"2026-01-01T00:00:00.000000Z"}}`: "only add addresses of the recorded token",
			arrivals(old):          "only add addresses of the recorded token",
			arrivals(earlier, old): "only add addresses of the recorded token",
			arrivals(others, old):  "only add addresses of the recorded token",
			arrivals(added):        "only add addresses of the recorded token",
			arrivals(own, old, from("192.0.2.9", old.Token)): "only add addresses of the recorded token",
			arrivals(own, own): "Duplicate value",
			arrivals(own, old, from(strings.Repeat("a", 46), digits)): "may not be more than 45",
			arrivals(own, old, from("192.0.2.300", digits)):           "address must be an IP address",
			arrivals(own, old, from("fe80::1%eth0", digits)):          "address must be an IP address",
			arrivals(append(many(17, digits), own, old)...):           "must have at most 16 items",
		} {
			Eventually(patched).WithArguments(ctx, m.config.DeepCopy(), status).Should(MatchError(ContainSubstring(refusal)), status)
		}
		Expect(patched(ctx, m.config.DeepCopy(), `{"requests":{"firstRequestedTime":"2026-01-01T00:00:00.000000Z",
			"requestedTime":"2026-01-01T00:00:00.000000Z","servedTime":"2026-01-01T00:00:00.000000Z"}}`)).To(Succeed())
		Expect(patched(ctx, m.config.DeepCopy(), `{"requests":{"servedTime":null}}`)).To(Succeed())
		Expect(patched(ctx, m.config.DeepCopy(), `{"requests":{"registrationRequestedTime":"2026-01-01T00:00:00.000000Z"}}`)).To(Succeed())
		Expect(patched(ctx, m.config.DeepCopy(), arrivals(own, old, added))).To(Succeed())
		Expect(patched(ctx, m.config.DeepCopy(), arrivals(own, added))).To(Succeed())

		By("changing no address once the token is revoked")
		revoked := m.config.DeepCopy()
		delete(revoked.Annotations, bootstrapv1.TokenHashAnnotation)
		Expect(admin.Patch(ctx, revoked, client.MergeFrom(m.config))).To(Succeed())
		Expect(patched(ctx, m.config.DeepCopy(), arrivals(own))).To(MatchError(ContainSubstring("only add addresses of the recorded token")))
		Expect(patched(ctx, m.config.DeepCopy(), arrivals(own, added, from("192.0.2.10", digits)))).To(MatchError(ContainSubstring("only add addresses of the recorded token")))
	})

	It("can write nothing else", func(ctx SpecContext) {
		m := newMachine(ctx, "kept")
		take := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+bootstrapv1.TokenHashAnnotation+`":"a"}}}`))
		Expect(taken.Patch(ctx, m.config.DeepCopy(), take)).To(MatchError(ContainSubstring("forbidden")))
		rendered := &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Namespace: m.config.Namespace, Name: m.rendered}}
		Expect(taken.Patch(ctx, rendered, take)).To(MatchError(ContainSubstring("forbidden")))
		Expect(taken.Delete(ctx, m.config.DeepCopy())).To(MatchError(ContainSubstring("forbidden")))
	})
})
