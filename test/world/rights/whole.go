package rights

import (
	"fmt"
	"slices"

	"github.com/onsi/ginkgo/v2"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
)

// WholeRun reports whether the suite runs all its specs. Only then unused rights can be detected.
func WholeRun() bool {
	suite, _ := ginkgo.GinkgoConfiguration()
	return len(suite.FocusStrings)+len(suite.SkipStrings)+len(suite.FocusFiles)+len(suite.SkipFiles) == 0 && suite.LabelFilter == ""
}

// InEndToEnd returns those of the documented rights that the manager uses in test/suites/e2e, for CheckWorkload.
func InEndToEnd(documented []Right) []Right {
	elsewhere := slices.Concat(SeenInIntegrationOnly, SeenInFlowsOnly, SeenInControlPlaneOnly)
	return slices.DeleteFunc(documented, func(r Right) bool { return slices.Contains(elsewhere, r) })
}

// InFlows returns the rights that the manager uses in docs/flows.md and not in test/suites/e2e, for CheckWorkload.
func InFlows([]Right) []Right { return SeenInFlowsOnly }

// CheckWorkload returns an error if the manager used other rights in a workload cluster than the documented ones, or
// after a whole run not all that the suite uses. It is for AfterSuite.
func CheckWorkload(plane *controlplane.ControlPlane, usedBySuite func(documented []Right) []Right) error {
	documented, err := Documented("Rights of the manager in a workload cluster")
	if err != nil {
		return err
	}
	used, err := UsedInWorkload(plane)
	if err != nil {
		return err
	}
	without := func(rights, others []Right) []Right {
		return slices.DeleteFunc(slices.Clone(rights), func(r Right) bool { return slices.Contains(others, r) })
	}
	if undocumented := without(used, documented); len(undocumented) > 0 {
		return fmt.Errorf("the manager used rights in the workload cluster that docs/dev/security.md lacks: %v", undocumented)
	}
	if unused := without(usedBySuite(documented), used); WholeRun() && len(unused) > 0 {
		return fmt.Errorf("the manager did not use rights in the workload cluster that docs/dev/security.md has: %v", unused)
	}
	return nil
}
