package render

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"k8s.io/cli-runtime/pkg/printers"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
)

// origins are what render --explain prints: where each entry of a rendered config came from. Lists are never null.
type origins struct {
	// Name is the rendered config's name.
	Name string `json:"name"`
	// Source are the MachineConfigs that were merged, in order.
	Source []string `json:"source"`
	// Entries are all entries of the rendered config.
	Entries []pool.Origin `json:"entries"`
}

// printOrigins prints where each entry of a rendered config came from.
func (o *options) printOrigins(config *pool.Rendered) error {
	if o.output.Format == formatIgnition {
		return fmt.Errorf("--output %s can't be used with --explain: use json or yaml, or leave it out for a table", o.output.Format)
	}
	answer := origins{
		Name:    config.Name,
		Source:  append([]string{}, config.Source...),
		Entries: append([]pool.Origin{}, config.Origins...),
	}
	return o.output.Print(o.streams.Out, answer, answer.table)
}

// table prints a line for every entry, as kubectl does.
func (o origins) table(out io.Writer) error {
	lines := printers.GetNewTabWriter(out)
	fmt.Fprintln(lines, "KIND\tNAME\tMACHINECONFIG\tOVER")
	for _, entry := range o.Entries {
		source := entry.MachineConfig
		if entry.Pool != "" {
			source = entry.Field + " of pool " + entry.Pool
		}
		overridden := cmp.Or(strings.Join(entry.Overrides, ","), cli.None)
		fmt.Fprintf(lines, "%s\t%s\t%s\t%s\n", entry.Kind, cli.Printable(entry.Name), cli.Printable(source), cli.Printable(overridden))
	}
	return lines.Flush()
}
