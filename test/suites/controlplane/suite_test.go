// Package controlplane tests a workload cluster whose highly available control plane runs on hosts: real hosts in
// namespaces that cloud-init configures, with the real kubeadm, kubelet and static Pods, which Cluster API's real
// kubeadm providers create and look after. Clients reach the API servers only through a load balancer in front of the
// hosts. "make test-control-plane" runs it. "make test" skips it.
package controlplane

import (
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// variable is the environment variable with which the suite runs: three hosts of a control plane take most of two
// processors, and other suites that run beside it are late.
const variable = "POOLBOOT_TEST_CONTROL_PLANE"

const (
	planeHosts  = 3
	workerHosts = 2
)

var (
	lab *site.Site
	t   *tenant.Tenant
)

func TestControlPlane(tt *testing.T) {
	if os.Getenv(variable) == "" {
		tt.Skip("run make test-control-plane, which builds the images of a control plane and sets " + variable)
	}
	RegisterFailHandler(Fail)
	RunSpecs(tt, "Control plane on hosts")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(3 * time.Minute)
	SetDefaultEventuallyPollingInterval(500 * time.Millisecond)
	lab = tenant.StartSite(ctx, site.Options{Agents: true, KubeadmControlPlane: true, GarbageCollector: true, Consoles: GinkgoWriter})
	began := time.Now()
	t = tenant.NewWithControlPlane(ctx, lab, planeHosts, workerHosts)
	measured("start", "the first API server after %.0f s", time.Since(began).Seconds())
	t.Deploy(ctx, tenant.Deployment{Name: "workers", Replicas: workerHosts})
	expectComplete(ctx)
	measured("start", "%d hosts of the control plane and %d workers after %.0f s", planeHosts, workerHosts, time.Since(began).Seconds())
}, NodeTimeout(15*time.Minute))

var _ = ReportAfterEach(func(report SpecReport) { tenant.ShowLogs(report, lab) })
