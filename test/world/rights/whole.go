package rights

import "github.com/onsi/ginkgo/v2"

// WholeRun says whether the suite runs all its specs: only then can it be told what nothing uses.
func WholeRun() bool {
	suite, _ := ginkgo.GinkgoConfiguration()
	return len(suite.FocusStrings)+len(suite.SkipStrings)+len(suite.FocusFiles)+len(suite.SkipFiles) == 0 && suite.LabelFilter == ""
}
