package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"

	"sigs.k8s.io/yaml"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// explained is what render --explain prints: where everything in a rendered config came from. Lists are never null.
type explained struct {
	// Name is the rendered config's name.
	Name string `json:"name"`
	// Source are the MachineConfigs that were merged, in order.
	Source []string `json:"source"`
	// Entries are all entries of the rendered config.
	Entries []pool.Origin `json:"entries"`
}

// explain prints where everything in a rendered config came from, as a table or as an object.
func explain(out io.Writer, config *pool.Rendered, output string) error {
	answer := explained{
		Name:    config.Name,
		Source:  append([]string{}, config.Source...),
		Entries: append([]pool.Origin{}, config.Origins...),
	}
	switch output {
	case "":
		return answer.table(out)
	case "json":
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(answer)
	case "yaml":
		document, err := yaml.Marshal(answer)
		if err == nil {
			_, err = out.Write(document)
		}
		return err
	}
	return fmt.Errorf("--output %s does not go with --explain: use json or yaml, or leave it out for a table", output)
}

// table writes a line for every entry, as kubectl does.
func (e explained) table(out io.Writer) error {
	lines := tabwriter.NewWriter(out, 6, 4, 3, ' ', 0)
	fmt.Fprintln(lines, "KIND\tNAME\tMACHINECONFIG\tOVER")
	for _, entry := range e.Entries {
		over := "<none>"
		if len(entry.Over) > 0 {
			over = strings.Join(entry.Over, ",")
		}
		from := entry.MachineConfig
		if entry.Pool != "" {
			from = "spec.kubeletConfiguration of pool " + entry.Pool
		}
		fmt.Fprintf(lines, "%s\t%s\t%s\t%s\n", entry.Kind, printable(entry.Name), from, over)
	}
	return lines.Flush()
}

// printable quotes a name that would do something to a terminal, or to the table.
func printable(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(name)
	}
	return name
}
