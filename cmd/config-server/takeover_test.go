package main

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// arrival is an entry of status.boot.addresses.
func arrival(address, token, reported string) string {
	if reported != "" {
		reported = `,"reportedTime":"2026-01-01T00:00:00.000000Z"`
	}
	return `{"` + address + `":{"firstTime":"2026-01-01T00:00:00.000000Z","token":"` + token + `"` + reported + `}}`
}

var _ = Describe("Who has taken the config server over", func() {
	var own client.Client
	BeforeEach(func() {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		Expect(err).NotTo(HaveOccurred())
		own, err = client.New(config, client.Options{Scheme: admin.Scheme()})
		Expect(err).NotTo(HaveOccurred())
	})
	patched := func(ctx SpecContext, object client.Object, status string) error {
		return own.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(`{"status":`+status+`}`)))
	}

	It("can say that a host asked, and not what it is", func(ctx SpecContext) {
		m := newMachine(ctx, "taken-over")
		m.config.Status.Boot.PreparedTime = &metav1.MicroTime{Time: metav1.Now().Time}
		m.config.Status.ObservedGeneration = 1
		now, digits := metav1.NowMicro(), m.config.Annotations[bootstrapv1.TokenHashAnnotation][:bootstrapv1.TokenDigits]
		m.config.Status.Boot.Addresses = map[string]bootstrapv1.TokenAddress{
			"192.0.2.7": {FirstUsedTime: now, Token: digits}, "192.0.2.8": {FirstUsedTime: now, Token: "0123456789abcdef"}}
		Expect(admin.Status().Update(ctx, m.config)).To(Succeed())
		for status, refusal := range map[string]string{
			`{"pool":"infra"}`:                   "no status but boot",
			`{"node":{"name":"b","uid":"c"}}`:    "no status but boot",
			`{"observedGeneration":null}`:        "no status but boot",
			`{"boot":{"credentialID":"abcdef"}}`: "nothing of status.boot but",
			`{"boot":{"preparedTime":null}}`:     "nothing of status.boot but",
			`{"hostAddresses":["192.0.2.9"]}`:    "no status but boot",
			// Where a token came from stays on record, and is told of.
			`{"boot":{"addresses":null}}`:                                                 "addresses where the token",
			`{"boot":{"addresses":{"192.0.2.7":null}}}`:                                   "addresses where the token",
			`{"boot":{"addresses":` + arrival("192.0.2.7", digits, "") + `}}`:             "addresses where the token",
			`{"boot":{"addresses":` + arrival("192.0.2.9", "0123456789abcdef", "") + `}}`: "addresses where the token",
			`{"boot":{"addresses":` + arrival("192.0.2.9", digits, "reported") + `}}`:     "addresses where the token",
			`{"boot":{"addresses":` + arrival(strings.Repeat("a", 46), digits, "") + `}}`: "a key is an IP address",
		} {
			Eventually(patched).WithArguments(ctx, m.config.DeepCopy(), status).Should(MatchError(ContainSubstring(refusal)), status)
		}
		Expect(patched(ctx, m.config.DeepCopy(), `{"boot":{"firstRequestedTime":"2026-01-01T00:00:00.000000Z",
			"requestedTime":"2026-01-01T00:00:00.000000Z","servedTime":"2026-01-01T00:00:00.000000Z"}}`)).To(Succeed())
		Expect(patched(ctx, m.config.DeepCopy(), `{"boot":{"servedTime":null}}`)).To(Succeed())
		Expect(patched(ctx, m.config.DeepCopy(), `{"boot":{"addresses":`+arrival("192.0.2.9", digits, "")+`}}`)).To(Succeed())
		Expect(patched(ctx, m.config.DeepCopy(), `{"boot":{"addresses":{"192.0.2.8":null}}}`)).To(Succeed())
	})

	It("can change nothing else", func(ctx SpecContext) {
		m := newMachine(ctx, "kept")
		take := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+bootstrapv1.TokenHashAnnotation+`":"a"}}}`))
		Expect(own.Patch(ctx, m.config.DeepCopy(), take)).To(MatchError(ContainSubstring("forbidden")))
		rendered := &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Namespace: m.config.Namespace, Name: m.rendered}}
		Expect(own.Patch(ctx, rendered, take)).To(MatchError(ContainSubstring("forbidden")))
		Expect(own.Delete(ctx, m.config.DeepCopy())).To(MatchError(ContainSubstring("forbidden")))
	})
})
