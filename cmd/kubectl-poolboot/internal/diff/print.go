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
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
)

// print prints the difference as text: the pool, its Machines, and the changes.
func (d difference) print(to io.Writer) error {
	out := &strings.Builder{}
	config, reboot := d.summarize()
	out.WriteString(d.title() + "\n")
	out.WriteString(cli.Paragraph("  config:   ", config))
	if d.pool.Spec.IsPaused() {
		out.WriteString("  paused:   " + isPaused + "\n")
	}
	if d.pool.Spec.ConfigurationName != "" {
		out.WriteString(cli.Paragraph("  pinned:   ", isPinned(&d.pool)))
	}
	out.WriteString(cli.Paragraph("  reboot:   ", reboot))
	for _, obstacle := range d.plan.Obstacles {
		out.WriteString(cli.Paragraph("    ", obstacle.String()))
	}
	if disks := d.describeDisks(); disks != "" {
		out.WriteString(cli.Paragraph("  disks:    ", disks))
	}
	fmt.Fprintf(out, "  machines: %d\n", len(d.machines))
	for _, machine := range d.machines {
		line := describeMachine(machine)
		if effect := d.effects[machine.Name]; effect != "" {
			line += ": " + effect
		}
		out.WriteString(cli.Paragraph("    ", line))
	}
	d.printChanges(out)
	_, err := io.WriteString(to, out.String())
	return err
}

// isPaused is what a pause does to a config.
const isPaused = "yes: the config is rendered, and handed out after the pause"

// isPinned is what spec.configurationName of a pool does to a config.
func isPinned(p *poolv1.MachineConfigPool) string {
	return fmt.Sprintf("yes: the config is rendered, and hosts get %s (spec.configurationName) until %s", p.Spec.ConfigurationName, rollout.Command("resume", p))
}

func (d difference) title() string {
	return fmt.Sprintf("MachineConfigPool %s/%s (Cluster %s)", d.pool.Namespace, d.pool.Name, d.pool.Spec.ClusterName)
}

// summarize returns how the rendered config changes, and whether hosts reboot.
func (d difference) summarize() (config, reboot string) {
	before := cmp.Or(d.before, "nothing")
	if d.isNew {
		before = "new, compared with " + before
	}
	config, reboot = before+" -> "+d.after, d.plan.DescribeReboot(update.Rebooting{Method: pool.RebootMethodOf(&d.pool), Can: d.can})
	isSame := d.before == d.after
	if isSame {
		config = d.after + ", unchanged"
	}
	switch {
	case d.restartsKubelet:
		reboot += " (its flags have the labels and taints of the pool)"
	case isSame && d.plan.Effect() == update.EffectNone:
		reboot = "no: the config is the same"
	}
	switch {
	case d.isNew && d.before == "":
		reboot = "no: the pool has no hosts"
	case d.isNew && d.plan.Effect() == update.EffectReboot:
		reboot += " (on hosts that move here from worker)"
	}
	return config, reboot
}

// describeDisks returns which disks running hosts keep, or "".
func (d difference) describeDisks() string {
	var names []string
	for _, item := range d.plan.Outdated {
		names = append(names, item.String())
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("running hosts (%d) keep %s", len(d.effects), update.DescribeOutdated(names))
}

// printChanges prints what changes in the config and the spec of the pool, and on existing Nodes.
func (d difference) printChanges(out *strings.Builder) {
	if len(d.changes) == 0 && d.before != d.after {
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
