package convert

import (
	"regexp"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/explain"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/render"
)

func TestConvert(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "kubectl poolboot convert")
}

// places matches the place at the beginning of a remark.
var places = regexp.MustCompile(`(?m)^(note: |warning: )\S+: document \d+: (?:item \d+: )*line \d+: `)

// runPoolboot runs a command line with nothing on standard input, and leaves out the places of remarks.
func runPoolboot(args ...string) clitest.Result {
	r := runWithInput("", args...)
	r.ErrOut = places.ReplaceAllString(r.ErrOut, "$1")
	return r
}

// runWithInput runs a command line with a text on standard input.
func runWithInput(text string, args ...string) clitest.Result {
	switch args[0] {
	case "render":
		return clitest.Run(text, render.New, args...)
	case "which":
		return clitest.Run(text, clitest.Offline(explain.NewWhich), args...)
	}
	return clitest.Run(text, clitest.Offline(New), args...)
}
