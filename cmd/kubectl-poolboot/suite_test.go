package main

import (
	"bytes"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

func TestKubectlPoolboot(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "kubectl poolboot")
}

// runPoolboot runs a command line with nothing on standard input.
func runPoolboot(args ...string) clitest.Result {
	var out, errOut bytes.Buffer
	code := run(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}, args...)
	return clitest.Result{Code: code, Out: out.String(), ErrOut: clitest.Unwrap(errOut.String())}
}

// run runs a command line and returns its exit code.
func run(streams genericiooptions.IOStreams, args ...string) int {
	return cli.Execute(newRoot(streams, input.NewConnection), streams.ErrOut, args)
}

// eachCommand visits all commands that a user sees.
func eachCommand(visit func(*cobra.Command)) {
	var visitAll func(*cobra.Command)
	visitAll = func(cmd *cobra.Command) {
		visit(cmd)
		for _, sub := range cmd.Commands() {
			if !sub.Hidden {
				visitAll(sub)
			}
		}
	}
	visitAll(newRoot(genericiooptions.IOStreams{}, input.NewConnection))
}
