package explain

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

func TestExplain(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "kubectl poolboot explain")
}

// runPoolboot runs a command line with nothing on standard input.
func runPoolboot(args ...string) clitest.Result { return runWithInput("", args...) }

// runWithInput runs a command line with a text on standard input.
func runWithInput(text string, args ...string) clitest.Result {
	switch args[0] {
	case "which":
		return clitest.Run(text, clitest.Offline(NewWhich), args...)
	case "labels":
		return clitest.Run(text, clitest.Offline(NewLabels), args...)
	}
	return clitest.Run(text, New, args...)
}
