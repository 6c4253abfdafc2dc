package input_test

import (
	"slices"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/explain"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/render"
)

func TestInput(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "input of kubectl poolboot")
}

// runPoolboot runs a command line with nothing on standard input.
func poolboot(args ...string) clitest.Result { return poolbootReading("", args...) }

// runWithInput runs a command line with a text on standard input.
func poolbootReading(text string, args ...string) clitest.Result {
	if slices.Contains(args, "render") {
		return clitest.Run(text, render.New, args...)
	}
	return clitest.Run(text, clitest.Offline(explain.NewWhich), args...)
}
