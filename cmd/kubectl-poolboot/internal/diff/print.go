package diff

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// print writes the difference for people: the pool, whom it concerns, what changes.
func (d difference) print(to io.Writer) error {
	out := &strings.Builder{}
	fmt.Fprintf(out, "MachineConfigPool %s/%s (Cluster %s)\n", d.pool.Namespace, d.pool.Name, d.pool.Spec.ClusterName)
	was := cmp.Or(d.before, "nothing")
	if d.isNew {
		was = "new, compared with " + was
	}
	isSame := d.before == d.after
	if isSame {
		fmt.Fprintf(out, "  config:   %s, unchanged\n", d.after)
	} else {
		fmt.Fprintf(out, "  config:   %s -> %s\n", was, d.after)
	}
	if d.pool.Spec.IsPaused() {
		out.WriteString("  paused:   yes: the config is rendered, and handed out when the pause ends\n")
	}
	if isSame {
		out.WriteString("  reboot:   no: the config is the same\n")
	} else {
		fmt.Fprintf(out, "  reboot:   %s\n", reboot(d.changes))
	}
	fmt.Fprintf(out, "  machines: %d\n", len(d.machines))
	for _, machine := range d.machines {
		fmt.Fprintf(out, "    %s\n", who(machine))
	}
	if len(d.changes) == 0 && !isSame {
		out.WriteString("  no change: only how it is written, or the name\n")
	}
	for _, c := range d.changes {
		c.print(out)
	}
	for _, c := range d.declared {
		fmt.Fprintf(out, "  %s\n", cli.Printable(c.String()))
		for _, line := range c.consequences() {
			fmt.Fprintf(out, "      %s\n", cli.Printable(line))
		}
	}
	if d.unread != nil {
		fmt.Fprintf(out, "  nodes: what becomes of existing Nodes and their Pods can't be told: %s\n", cli.Printable(d.unread.Error()))
	}
	for _, n := range d.nodes {
		fmt.Fprintf(out, "  Node %s\n", cli.Printable(n.name))
		for _, line := range n.lines { // the workload cluster's API server is a tenant's, and validates what it likes
			for part := range strings.SplitSeq(line, "\n") {
				fmt.Fprintf(out, "      %s\n", cli.Printable(part))
			}
		}
	}
	_, err := io.WriteString(to, out.String())
	return err
}

// who names a Machine and its Node.
func who(config bootstrapv1.PoolbootConfig) string {
	name := "PoolbootConfig " + config.Name
	if machine := input.MachineName(&config); machine != "" {
		name = "Machine " + machine
	}
	if record.HasNode(&config) {
		name += ", Node " + config.Status.NodeRef.Name
	}
	return name
}

func (c change) print(out *strings.Builder) {
	switch {
	case c.after == nil:
		fmt.Fprintf(out, "  - %s\n", c.item)
		if _, isField := c.before[""]; !isField {
			return // that it goes is all that there is to say
		}
	case c.before == nil:
		fmt.Fprintf(out, "  + %s\n", c.item)
	default:
		fmt.Fprintf(out, "  ~ %s\n", c.item)
	}
	names := maps.Clone(c.before)
	if names == nil {
		names = properties{}
	}
	maps.Copy(names, c.after)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		printProperty(out, name, c.before, c.after)
	}
}

// printProperty writes one property, if it changes.
func printProperty(out *strings.Builder, name string, of, to properties) {
	before, was := of[name]
	after, is := to[name]
	title := "      "
	if name != "" {
		title += name + ": "
	}
	switch {
	case was && is && before.value == after.value:
	case (before.isText || !was) && (after.isText || !is):
		if name != "" {
			out.WriteString("      " + name + ":\n")
		}
		printLines(out, before.value, after.value)
	case !was:
		out.WriteString(title + after.shown + "\n")
	case !is:
		out.WriteString(title + before.shown + " -> none\n")
	default:
		out.WriteString(title + before.shown + " -> " + after.shown + "\n")
	}
}

// printLines writes a unified diff of two texts.
func printLines(out *strings.Builder, before, after string) {
	unified, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{A: lines(before), B: lines(after), Context: 3})
	cli.Must(err)
	for line := range strings.Lines(unified) {
		out.WriteString("        " + line)
	}
}

// lines are the lines of a text. What has no end of line is marked as diff does.
func lines(text string) []string {
	split := slices.Collect(strings.Lines(text))
	if n := len(split); n > 0 && !strings.HasSuffix(split[n-1], "\n") {
		split[n-1] += "\n\\ No newline at end of file\n"
	}
	return split
}
