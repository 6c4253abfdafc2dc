package plan

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

func TestPlan(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "kubectl poolboot plan")
}

// runPlan runs plan with a text on standard input.
func runPlan(text string, args ...string) clitest.Result {
	return clitest.Run(text, clitest.Offline(New), append([]string{"plan"}, args...)...)
}
