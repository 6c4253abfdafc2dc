package diff

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
)

// print prints the difference as text: the pool, its Machines, and the changes.
func (d difference) print(to io.Writer) error {
	out := &strings.Builder{}
	fmt.Fprintf(out, "MachineConfigPool %s/%s (Cluster %s)\n", d.pool.Namespace, d.pool.Name, d.pool.Spec.ClusterName)
	before := cmp.Or(d.before, "nothing")
	if d.isNew {
		before = "new, compared with " + before
	}
	config, rebootReason := before+" -> "+d.after, d.plan.DescribeReboot(update.Rebooting{Method: pool.RebootMethodOf(&d.pool), Can: d.can})
	isSame := d.before == d.after
	if isSame {
		config = d.after + ", unchanged"
	}
	switch {
	case d.restartsKubelet:
		rebootReason += " (its flags have the labels and taints of the pool)"
	case isSame && d.plan.Effect() == update.EffectNone:
		rebootReason = "no: the config is the same"
	}
	out.WriteString(cli.Paragraph("  config:   ", config))
	if d.pool.Spec.IsPaused() {
		out.WriteString("  paused:   yes: the config is rendered, and handed out after the pause\n")
	}
	switch {
	case d.isNew && d.before == "":
		rebootReason = "no: the pool has no hosts"
	case d.isNew && d.plan.Effect() == update.EffectReboot:
		rebootReason += " (on hosts that move here from worker)"
	}
	out.WriteString(cli.Paragraph("  reboot:   ", rebootReason))
	for _, obstacle := range d.plan.Obstacles {
		out.WriteString(cli.Paragraph("    ", obstacle.String()))
	}
	if items := d.plan.Outdated; len(items) > 0 {
		names := make([]string, len(items))
		for i, item := range items {
			names[i] = item.String()
		}
		out.WriteString(cli.Paragraph("  disks:    ", fmt.Sprintf("running hosts (%d) keep %s", len(d.effects), update.DescribeOutdated(names))))
	}
	fmt.Fprintf(out, "  machines: %d\n", len(d.machines))
	for _, machine := range d.machines {
		line := describeMachine(machine)
		if effect := d.effects[machine.Name]; effect != "" {
			line += ": " + effect
		}
		out.WriteString(cli.Paragraph("    ", line))
	}
	if len(d.changes) == 0 && !isSame {
		out.WriteString("  no change: only the notation or the name differs\n")
	}
	own := 0
	for _, c := range d.changes {
		if c.isOwn() {
			own++
			continue
		}
		c.print(out)
	}
	if own > 0 {
		fmt.Fprintf(out, "  ~ Poolboot's own files: %d\n", own)
	}
	for _, line := range d.replaced {
		out.WriteString(cli.Paragraph("  ! ", line))
	}
	for _, c := range d.declared {
		out.WriteString(cli.Paragraph("  ", c.String()))
		for _, line := range c.describe() {
			out.WriteString(cli.Paragraph("      ", line))
		}
	}
	if d.nodesErr != nil {
		out.WriteString(cli.Paragraph("  nodes: ", "the effect on existing Nodes and their Pods is unknown: "+d.nodesErr.Error()))
	}
	for _, n := range d.nodes {
		fmt.Fprintf(out, "  Node %s\n", cli.Printable(n.name))
		for _, line := range n.lines { // a tenant may control the workload cluster's API server and return any text
			for part := range strings.SplitSeq(line, "\n") {
				out.WriteString(cli.Paragraph("      ", part))
			}
		}
	}
	_, err := io.WriteString(to, out.String())
	return err
}

// describeMachine returns the names of a Machine and its Node.
func describeMachine(config bootstrapv1.PoolbootConfig) string {
	name := "PoolbootConfig " + config.Name
	if machine := record.MachineName(&config); machine != "" {
		name = "Machine " + machine
	}
	if record.HasNode(&config) {
		name += ", Node " + config.Status.NodeRef.Name
	}
	return name
}

func (c change) print(out *strings.Builder) {
	sign := "~"
	switch {
	case c.after == nil:
		sign = "-"
	case c.before == nil:
		sign = "+"
	}
	fmt.Fprintf(out, "  %s %s\n", sign, c.item)
	before, after := ptr.Deref(c.before, entry{}), ptr.Deref(c.after, entry{})
	switch {
	case c.after == nil && c.name != "": // only the name of a removed item is printed
	case before.text == after.text && c.before != nil && c.after != nil:
		out.WriteString("      it changes, and is not shown\n")
	default:
		printLines(out, before.text, after.text)
	}
}

// printLines prints the lines of a text that change, and some around them.
func printLines(out *strings.Builder, before, after string) {
	unified, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{A: slices.Collect(strings.Lines(before)), B: slices.Collect(strings.Lines(after)), Context: 3})
	utilruntime.Must(err)
	for i, line := range slices.Collect(strings.Lines(unified)) {
		switch {
		case !strings.HasPrefix(line, "@@"):
			out.WriteString("      " + line)
		case i > 0: // the numbers of lines are not those of a file
			out.WriteString("      ...\n")
		}
	}
}
