package controllers

import (
	"fmt"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
)

func TestControllers(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Controllers")
}

var _ = Describe("Options", func() {
	kinds := func(opts Options) (kinds []string) {
		for _, r := range reconcilers(nil, nil, nil, nil, nil, &opts) {
			kinds = append(kinds, fmt.Sprintf("%T", r.reconciler))
		}
		return kinds
	}

	It("update running hosts only if there is an agent to offer", func() {
		agent := assignment.Agent{SHA512: map[string]string{"amd64": "6"}}
		Expect(kinds(Options{Agent: agent})).To(ContainElement("*update.Updates"))
		Expect(kinds(Options{})).NotTo(ContainElement("*update.Updates"))
	})

	It("can disable the approver of certificates", func() {
		on, off := kinds(Options{ApproveCertificates: true}), kinds(Options{})
		Expect(on).To(ContainElement("*certificate.Reconciler"))
		Expect(off).NotTo(ContainElement("*certificate.Reconciler"))
		Expect(append(off, "*certificate.Reconciler")).To(ConsistOf(on))
	})
})
