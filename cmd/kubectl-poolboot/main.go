// Command kubectl-poolboot is a kubectl plugin that answers from files, without a cluster, what Poolboot would do: which
// pool a Node is in, and what a pool renders. It reads Poolboot's kinds and OpenShift's alike. The answers are those of
// bootstrap/pool, by which the controllers go too; here is only how files are read and answers are written.
package main

import (
	"errors"
	"fmt"
	"os"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// Exit codes.
const (
	exitError    = 1
	exitConflict = 2 // labels that belong to several custom pools
)

func main() {
	os.Exit(run(genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}, os.Args[1:]...))
}

// run runs the command line and returns the exit code.
func run(streams genericiooptions.IOStreams, args ...string) int {
	cmd := newRoot(streams)
	cmd.SetArgs(args)
	err := cmd.Execute()
	if err == nil {
		return 0
	}
	fmt.Fprintln(streams.ErrOut, "error:", err)
	if conflict := (*pool.ConflictError)(nil); errors.As(err, &conflict) {
		return exitConflict
	}
	return exitError
}
