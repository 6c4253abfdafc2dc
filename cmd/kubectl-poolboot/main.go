// Command kubectl-poolboot is a kubectl plugin that answers from files, without a cluster, what Poolboot would do:
// which pool a Node is in, what a pool renders, and what its Nodes carry. It turns OpenShift's kinds into Poolboot's,
// and against a cluster it shows what files would change. The answers are those of bootstrap/pool and
// bootstrap/registration, by which the controllers go too; here is only how files are read and answers are written.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// Exit codes.
const (
	exitError    = 1
	exitConflict = 2 // labels that belong to several custom pools, a pool in which no Node can be registered, rules that hold a host, or something to do

	exitDifferent = 1 // diff found a difference, as kubectl diff says it
	exitDiffError = 2 // diff failed: for it, 1 is taken
)

func main() {
	os.Exit(run(genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}, os.Args[1:]...))
}

// run runs the command line and returns the exit code.
func run(streams genericiooptions.IOStreams, args ...string) int {
	return execute(newRoot(streams), streams.ErrOut, args)
}

// execute runs a command, says what went wrong and returns the exit code.
func execute(cmd *cobra.Command, errOut io.Writer, args []string) int {
	cmd.SetArgs(args)
	ran, err := cmd.ExecuteC()
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errDifferent):
		return exitDifferent
	}
	fmt.Fprintln(errOut, "error:", err)
	var conflict *pool.ConflictError
	var unregistrable *unregistrableError
	var held *blockedHostError
	var todo *todoError
	if errors.As(err, &todo) || errors.As(err, &conflict) || errors.As(err, &unregistrable) || errors.As(err, &held) {
		return exitConflict
	}
	if ran.Name() == diffName {
		return exitDiffError
	}
	return exitError
}
