package which

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/utils/ptr"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// nodeMembership is the pool of one of several Nodes.
type nodeMembership struct {
	Node string `json:"node"`
	membership
	// Unsupported are the custom pools that the labels of a control plane Node name.
	Unsupported []string `json:"unsupported,omitempty"`
	// Conflict are the matching custom pools, when there are several.
	Conflict []string `json:"conflict,omitempty"`
}

// nodeKind is the kind of a Node at the beginning of errors.
const nodeKind = "Node"

// printNodes answers for Nodes in their order. Its error, after the answer, is the first conflict.
func (o *options) printNodes(source *input.Source, nodes []*corev1.Node, pools []poolv1.MachineConfigPool) (err error) {
	answers := make([]nodeMembership, len(nodes))
	var conflicts error
	for i, node := range nodes {
		decision, err := pool.Decide(node.Labels, pools)
		answer := nodeMembership{Node: node.Name, membership: newMembership(decision), Unsupported: decision.Unsupported}
		var conflict *pool.ConflictError
		switch {
		case errors.As(err, &conflict):
			answer.Conflict = conflict.Roles
			if conflicts == nil {
				conflicts = source.Locate(fmt.Errorf("%s %q: %w", nodeKind, node.Name, err))
			}
		case err != nil:
			return source.Locate(err)
		}
		answers[i] = answer
	}
	if o.output.Format == cli.FormatJSON {
		err = json.NewEncoder(o.streams.Out).Encode(answers)
	} else {
		err = printTable(o.streams.Out, answers)
	}
	return errors.Join(err, conflicts)
}

func printTable(out io.Writer, answers []nodeMembership) error {
	table := printers.GetNewTabWriter(out)
	fmt.Fprintln(table, "NODE\tPOOL\tNOTE")
	for _, answer := range answers {
		fmt.Fprintf(table, "%s\t%s\t%s\n", cli.Printable(answer.Node), cli.Printable(ptr.Deref(answer.Pool, cli.None)), cli.Printable(answer.note()))
	}
	return table.Flush()
}

// note returns why a Node is in no pool.
func (a nodeMembership) note() string {
	switch {
	case len(a.Conflict) > 0:
		return "conflict: several custom pools match: " + strings.Join(a.Conflict, " and ")
	case len(a.Unsupported) > 0:
		return "control plane; ignored custom pools: " + strings.Join(a.Unsupported, " and ")
	case a.ControlPlane:
		return "control plane"
	case a.Pool == nil:
		return "unmanaged"
	}
	return ""
}
