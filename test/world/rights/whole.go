package rights

import "github.com/onsi/ginkgo/v2"

// WholeRun reports whether the suite runs all its specs. Only then unused rights can be detected.
func WholeRun() bool {
	suite, _ := ginkgo.GinkgoConfiguration()
	return len(suite.FocusStrings)+len(suite.SkipStrings)+len(suite.FocusFiles)+len(suite.SkipFiles) == 0 && suite.LabelFilter == ""
}
