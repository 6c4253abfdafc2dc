package record_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

var _ = Describe("The token of a PoolbootConfig's host", func() {
	const hash = "5d41402abc4b2a76b9719d911017c592"
	type answers struct{ exists, accepted, expired, joined, unknown bool }
	answersOf := func(config *bootstrapv1.PoolbootConfig) answers {
		t := record.TokenOf(config)
		return answers{t.Exists(), t.IsAccepted(), record.IsTokenExpired(config), record.HasJoined(config), t.IsStateUnknown()}
	}

	It("reads the annotations in every state", func() {
		config := &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			bootstrapv1.TokenHashAnnotation: hash, bootstrapv1.TokenUIDAnnotation: "uid"}}}
		Expect(record.TokenOf(config)).To(Equal(record.Token{Hash: hash, UID: "uid"}))
		Expect(record.TokenOf(config).IsBoundTo("uid")).To(BeTrue())
		Expect(record.TokenOf(config).IsBoundTo("later")).To(BeFalse())
		Expect(answersOf(config)).To(Equal(answers{exists: true, accepted: true}))

		record.ExpireToken(config)
		Expect(record.TokenOf(config)).To(Equal(record.Token{Hash: hash, UID: "uid", State: bootstrapv1.TokenStateExpired}))
		Expect(answersOf(config)).To(Equal(answers{exists: true, expired: true}))

		config.Annotations[bootstrapv1.TokenStateAnnotation] = "Suspended"
		Expect(answersOf(config)).To(Equal(answers{exists: true, unknown: true}))

		record.RevokeToken(config)
		Expect(config.Annotations).NotTo(HaveKey(bootstrapv1.TokenHashAnnotation), "a program that does not know the state must not accept the token")
		Expect(record.TokenOf(config)).To(Equal(record.Token{UID: "uid", State: bootstrapv1.TokenStateRevoked}))
		Expect(answersOf(config)).To(Equal(answers{exists: true, joined: true}))

		config.Annotations[bootstrapv1.TokenHashAnnotation] = hash
		Expect(record.TokenOf(config).Hash).To(BeEmpty(), "the hash of a revoked token was restored")
	})

	It("does not exist without annotations, and can be revoked without them", func() {
		config := &bootstrapv1.PoolbootConfig{}
		Expect(record.TokenOf(config)).To(Equal(record.Token{}))
		Expect(answersOf(config)).To(Equal(answers{accepted: true}))
		record.RevokeToken(config)
		Expect(record.HasJoined(config)).To(BeTrue(), "an inline data Secret has no token")
	})
})
