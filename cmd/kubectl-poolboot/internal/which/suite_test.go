package which

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

func TestWhich(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "kubectl poolboot which")
}

// runPoolboot runs a command line with nothing on standard input.
func runPoolboot(args ...string) clitest.Result {
	return clitest.Run("", clitest.Offline(New), args...)
}

// runWithInput runs a command line with a text on standard input.
func runWithInput(text string, args ...string) clitest.Result {
	return clitest.Run(text, clitest.Offline(New), args...)
}
