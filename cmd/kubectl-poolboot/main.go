// Command kubectl-poolboot is a kubectl plugin that answers from files, without a cluster, what Poolboot would do:
// which pool a Node is in, what a pool renders, and what its Nodes get. It converts OpenShift's objects to Poolboot's,
// and shows what files would change in a cluster. The packages bootstrap/pool and bootstrap/registration decide, as
// they do for the controllers; the commands only read input and print answers.
package main

import (
	"os"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

func main() {
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	os.Exit(cli.Execute(newRoot(streams, input.NewConnection), streams.ErrOut, os.Args[1:]))
}
