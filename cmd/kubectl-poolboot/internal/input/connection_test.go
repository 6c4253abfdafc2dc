package input_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

var _ = Describe("A connection without a kubeconfig file", func() {
	It("says which flag to set", func() {
		GinkgoT().Setenv("KUBECONFIG", filepath.Join(GinkgoT().TempDir(), "config"))
		_, err := input.NewConnection().Open()
		Expect(err).To(MatchError("connect to the management cluster: there is no kubeconfig file, or it is empty: set --kubeconfig or --context"))
	})
})

var _ = Describe("A connection to a cluster without Poolboot", func() {
	It("says so, and that it can be the workload cluster", func() {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			known := map[string]string{"/api": `{"kind":"APIVersions","versions":["v1"]}`, "/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`}
			w.Header().Set("Content-Type", "application/json")
			if known[r.URL.Path] == "" {
				w.WriteHeader(http.StatusNotFound)
			}
			fmt.Fprint(w, known[r.URL.Path])
		}))
		DeferCleanup(server.Close)
		GinkgoT().Setenv("KUBECONFIG", clitest.WriteKubeconfig(server.URL))
		_, err := input.NewConnection().Open()
		Expect(err).To(MatchError("the cluster has no MachineConfigPools of poolboot.io/v1alpha1: install Poolboot, or set --kubeconfig or --context if this is a workload cluster and not the management cluster"))
	})
})
