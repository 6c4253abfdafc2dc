package convert

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/render"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/which"
)

func TestConvert(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "kubectl poolboot convert")
}

// runPoolboot runs a command line with nothing on standard input.
func runPoolboot(args ...string) clitest.Result { return runWithInput("", args...) }

// runWithInput runs a command line with a text on standard input.
func runWithInput(text string, args ...string) clitest.Result {
	switch args[0] {
	case "render":
		return clitest.Run(text, render.New, args...)
	case "which":
		return clitest.Run(text, clitest.Offline(which.New), args...)
	}
	return clitest.Run(text, clitest.Offline(New), args...)
}
