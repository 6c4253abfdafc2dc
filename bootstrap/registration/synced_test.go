package registration_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

var _ = Describe("The regular expressions of Machine labels that are synchronized to Nodes", func() {
	It("are compiled", func() {
		compiled, err := registration.CompileSyncedLabels([]string{`^site\.example\.com/`, `rack`})
		Expect(err).NotTo(HaveOccurred())
		Expect(compiled).To(HaveLen(2))
		Expect(compiled[0].MatchString("site.example.com/row")).To(BeTrue())
	})

	DescribeTable("are refused", func(expression, message string) {
		_, err := registration.CompileSyncedLabels([]string{`rack`, expression})
		Expect(err).To(MatchError(And(ContainSubstring("--additional-sync-machine-labels"), ContainSubstring(message))))
	},
		Entry("when one is not valid", "(", "missing closing )"),
		Entry("when a match can be slow", "(?:(?:a?){30}){30}", "smaller repetitions"),
	)
})
