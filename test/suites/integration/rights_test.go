package integration

import (
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/rights"
)

// isTestedByInstall reports whether test/suites/install/rights_test.go tests a right. Leases, their events and reviews
// are used by replicated managers and by protected metrics. For the rest the API server checks the right itself,
// without an entry in its audit log.
func isTestedByInstall(r rights.Right) bool {
	switch r.Resource {
	case "leases.coordination.k8s.io", "tokenreviews.authentication.k8s.io", "subjectaccessreviews.authorization.k8s.io":
		return true
	case "events":
		return r.Where == rights.Own
	case "machineconfigpools.poolboot.io", "enrollments.poolboot.io":
		return r.Verb == "delete"
	}
	return strings.HasSuffix(r.Resource, "/finalizers")
}

// isTestedByMigration reports whether only the CRD migrator uses a right, after an upgrade, which
// test/suites/install/migration_test.go tests. It does not test reading Enrollments: the migrator reads them only if no
// other client has written them since the storage version changed.
func isTestedByMigration(r rights.Right) bool {
	switch r.Resource {
	case "customresourcedefinitions.apiextensions.k8s.io", "customresourcedefinitions.apiextensions.k8s.io/status", "machineconfigs.poolboot.io":
		return r.Verb == "patch"
	case "poolbootconfigtemplates.bootstrap.cluster.x-k8s.io":
		return r.Verb == "get" || r.Verb == "patch"
	case "enrollments.poolboot.io":
		return r.Verb == "get"
	}
	return false
}

// isTestedByControlPlane reports whether only a Cluster with a KubeadmControlPlane needs a right, as that of
// test/suites/controlplane.
func isTestedByControlPlane(r rights.Right) bool {
	return r.Resource == "kubeadmcontrolplanes.controlplane.cluster.x-k8s.io"
}

// The programs ran with exactly the rights of config/. Each right must be used, and no request may be refused.
var _ = AfterSuite(func() {
	if lab == nil || !rights.WholeRun() {
		return
	}
	for program, heading := range map[string]string{rights.Manager: "Rights of the manager", rights.ConfigServer: "Rights of the config server"} {
		documented, err := rights.Documented(heading)
		Expect(err).NotTo(HaveOccurred())
		used, refused, err := rights.UsedInManagement(lab.Management, program)
		Expect(err).NotTo(HaveOccurred())
		Expect(refused).To(BeEmpty(), program)
		unused := slices.DeleteFunc(documented, func(r rights.Right) bool {
			return isTestedByInstall(r) || program == rights.Manager && (isTestedByMigration(r) || isTestedByControlPlane(r)) || slices.Contains(used, r)
		})
		Expect(unused).To(BeEmpty(), "%s has rights that it did not use in any spec: remove them, or add a spec that needs them", program)
	}

	documented, err := rights.Documented("Rights of the manager in a workload cluster")
	Expect(err).NotTo(HaveOccurred())
	used, err := rights.UsedInWorkload(lab.Workload)
	Expect(err).NotTo(HaveOccurred())
	Expect(documented).To(ContainElements(used))
	Expect(used).To(ContainElements(rights.SeenInIntegrationOnly))
})
