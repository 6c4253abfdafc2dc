package workload_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

var _ = Describe("The identity of a cluster", func() {
	It("includes the address of the manager's connection and the name in the server certificate", func(ctx SpecContext) {
		cluster := &clusterv1.Cluster{}
		cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "192.0.2.1", Port: 6443}
		identity := workload.Identity(ctx, &connected{config: &rest.Config{
			Host: "https://lb.example.com:6443", TLSClientConfig: rest.TLSClientConfig{ServerName: "api.example.com"},
		}}, cluster)
		for _, name := range []string{"192.0.2.1", "lb.example.com", "api.example.com"} {
			Expect(identity.CheckNodeName(name)).To(MatchError(ContainSubstring("control plane endpoint")), name)
		}
		Expect(identity.CheckNodeName("worker-1.example.com")).To(Succeed())
	})
})
