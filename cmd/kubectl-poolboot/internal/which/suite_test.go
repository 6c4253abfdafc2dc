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

// poolboot runs a command line with nothing on standard input.
func poolboot(args ...string) clitest.Result { return clitest.Run("", clitest.Offline(New), args...) }

// poolbootReading runs a command line with a text on standard input.
func poolbootReading(text string, args ...string) clitest.Result {
	return clitest.Run(text, clitest.Offline(New), args...)
}
