package controllers

import (
	"fmt"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/machineconfigpool"
)

func TestControllers(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Controllers")
}

var _ = Describe("Options", func() {
	kinds := func(opts Options) (kinds []string) {
		for _, r := range reconcilers(nil, nil, nil, nil, nil, nil, &opts) {
			kinds = append(kinds, fmt.Sprintf("%T", r.reconciler))
		}
		return kinds
	}

	It("update running hosts only if there is an agent to offer", func() {
		updates := func(opts Options) (found []*update.Updates) {
			for _, r := range reconcilers(nil, nil, nil, nil, nil, nil, &opts) {
				switch r := r.reconciler.(type) {
				case *host.Reconciler:
					found = append(found, r.Updates)
				case *machineconfigpool.Reconciler:
					found = append(found, r.Updates)
				}
			}
			return found
		}
		Expect(updates(Options{Agent: assignment.Agent{SHA512: map[string]string{"amd64": "6"}}})).To(HaveExactElements(Not(BeNil()), Not(BeNil())))
		Expect(updates(Options{})).To(HaveExactElements(BeNil(), BeNil()))
	})

	It("can disable the approver of certificates", func() {
		on, off := kinds(Options{ApproveCertificates: true}), kinds(Options{})
		Expect(on).To(ContainElement("*certificate.Reconciler"))
		Expect(off).NotTo(ContainElement("*certificate.Reconciler"))
		Expect(append(off, "*certificate.Reconciler")).To(ConsistOf(on))
	})
})
