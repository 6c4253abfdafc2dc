package integration

import (
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/rights"
)

// ofInstalled says of a right that test/suites/install/rights_test.go sees to: leases and their events, and reviews,
// are of a manager that is one of several and guards its metrics; the last two are what the API server asks itself,
// which its audit log does not show.
func ofInstalled(r rights.Right) bool {
	switch r.Resource {
	case "leases.coordination.k8s.io", "tokenreviews.authentication.k8s.io", "subjectaccessreviews.authorization.k8s.io":
		return true
	case "events":
		return r.Where == rights.Own
	case "machineconfigpools.pool.cluster.x-k8s.io", "enrollments.pool.cluster.x-k8s.io":
		return r.Verb == "delete"
	}
	return strings.HasSuffix(r.Resource, "/finalizers")
}

// ofUpgrade says of a right of the manager that only the CRD migrator uses it, after an upgrade:
// test/suites/install/migration_test.go sees to it, but for Enrollments, which the migrator reads again only when
// nobody else has written them since they are stored in another version.
func ofUpgrade(r rights.Right) bool {
	switch r.Resource {
	case "customresourcedefinitions.apiextensions.k8s.io", "customresourcedefinitions.apiextensions.k8s.io/status", "machineconfigs.pool.cluster.x-k8s.io":
		return r.Verb == "patch"
	case "poolbootconfigtemplates.bootstrap.cluster.x-k8s.io":
		return r.Verb == "get" || r.Verb == "patch"
	case "enrollments.pool.cluster.x-k8s.io":
		return r.Verb == "get"
	}
	return false
}

// The programs have had the rights of config/ and no others. Each must have been used, and none have been missing.
var _ = AfterSuite(func() {
	if lab == nil || !rights.WholeRun() {
		return
	}
	for program, heading := range map[string]string{rights.Manager: "Rights of the manager", rights.ConfigServer: "Rights of the config server"} {
		documented, err := rights.Documented(heading)
		Expect(err).NotTo(HaveOccurred())
		used, refused, err := rights.UsedAtHome(lab.Management, program)
		Expect(err).NotTo(HaveOccurred())
		Expect(refused).To(BeEmpty(), program)
		unused := slices.DeleteFunc(documented, func(r rights.Right) bool {
			return ofInstalled(r) || program == rights.Manager && ofUpgrade(r) || slices.Contains(used, r)
		})
		Expect(unused).To(BeEmpty(), "%s has rights that no spec saw it use: take them away, or add the spec that needs them", program)
	}

	documented, err := rights.Documented("Rights of the manager in a workload cluster")
	Expect(err).NotTo(HaveOccurred())
	used, err := rights.UsedAway(lab.Workload)
	Expect(err).NotTo(HaveOccurred())
	Expect(documented).To(ContainElements(used))
	Expect(used).To(ContainElements(rights.SeenInIntegrationOnly))
})
