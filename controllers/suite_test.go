package controllers

import (
	"fmt"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestControllers(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Controllers")
}

var _ = Describe("Options", func() {
	It("can disable the approver of certificates", func() {
		kinds := func(opts Options) (kinds []string) {
			for _, r := range reconcilers(nil, nil, nil, nil, &opts) {
				kinds = append(kinds, fmt.Sprintf("%T", r.reconciler))
			}
			return kinds
		}
		on, off := kinds(Options{ApproveCertificates: true}), kinds(Options{})
		Expect(on).To(ContainElement("*certificate.Reconciler"))
		Expect(off).NotTo(ContainElement("*certificate.Reconciler"))
		Expect(append(off, "*certificate.Reconciler")).To(ConsistOf(on))
	})
})
