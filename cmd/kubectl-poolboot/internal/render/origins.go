package render

import (
	"fmt"
	"io"
	"strings"

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
	rows := make([][]string, len(o.Entries))
	for i, entry := range o.Entries {
		source := entry.MachineConfig
		if entry.Pool != "" {
			source = entry.Field + " of pool " + entry.Pool
		}
		rows[i] = []string{string(entry.Kind), entry.Name, source, strings.Join(entry.Overrides, ", ")}
	}
	return (&cli.Table{Out: out, Header: []string{"KIND", "NAME", "MACHINECONFIG", "OVER"}}).Print(rows...)
}
