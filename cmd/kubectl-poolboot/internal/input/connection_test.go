package input_test

import (
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

var _ = Describe("A connection without a kubeconfig file", func() {
	It("says which flag to set", func() {
		GinkgoT().Setenv("KUBECONFIG", filepath.Join(GinkgoT().TempDir(), "config"))
		_, err := input.NewConnection().Open()
		Expect(err).To(MatchError("connect to the management cluster: there is no kubeconfig file, or it is empty: set --kubeconfig or --context"))
	})
})
