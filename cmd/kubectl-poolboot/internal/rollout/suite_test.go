package rollout

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

func TestRollout(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "kubectl poolboot rollout")
}

// newCommand returns the command on one connection.
func newCommand(streams genericiooptions.IOStreams, to input.Connection) *cobra.Command {
	return New(streams, func() input.Connection { return to })
}

// runRollout runs a command of rollout without a cluster, with a text on standard input.
func runRollout(text string, args ...string) clitest.Result {
	return clitest.Run(text, newCommand, append([]string{"rollout"}, args...)...)
}
