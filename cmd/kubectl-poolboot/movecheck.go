package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// moveCheck looks whether clusterctl move could hang, or lose something.
type moveCheck struct {
	streams genericiooptions.IOStreams
	to      string // the kubeconfig of the other management cluster; "" when only this one is looked at
	output  string
	// target opens the other management cluster.
	target func(path string) (client.Reader, error)
	connection
}

// Effect is what a trap does to a move.
type Effect string

// Effects of traps, the worst first.
const (
	// Lost: an object would stay behind, or a host would be wiped or installed again.
	Lost Effect = "Lost"
	// Hangs: clusterctl would refuse to begin, wait in vain, or stop half-way.
	Hangs Effect = "Hangs"
	// Note: something to know. The move succeeds.
	Note Effect = "Note"
)

// trap is something in the way of a move.
type trap struct {
	Effect Effect `json:"effect"`
	// Object is the object that it is about, as Kind namespace/name.
	Object string `json:"object"`
	// Message says what would happen and why, Cure what to do about it.
	Message string `json:"message"`
	Cure    string `json:"cure"`
}

// moveChecked is what move-check prints.
type moveChecked struct {
	Namespace string `json:"namespace"`
	// Safe is true when nothing would hang or be lost.
	Safe bool `json:"safe"`
	// Moved is how many objects clusterctl would move.
	Moved int `json:"moved"`
	// Traps are never null.
	Traps []trap `json:"traps"`
}

func newMoveCheck(streams genericiooptions.IOStreams, to connection) *cobra.Command {
	return newMoveCheckTo(streams, to, byPath)
}

// newMoveCheckTo is newMoveCheck with another way to open the other management cluster.
func newMoveCheckTo(streams genericiooptions.IOStreams, to connection, target func(path string) (client.Reader, error)) *cobra.Command {
	m := &moveCheck{streams: streams, target: target, connection: to}
	cmd := &cobra.Command{
		Use:   "move-check [-n NAMESPACE] [--to-kubeconfig FILE]",
		Short: "Say what would hang or be lost in clusterctl move",
		Long: `Say what would hang or be lost if clusterctl move moved a namespace now, and the cure for each: Clusters that are paused, Machines
without a Node, annotations that hold the move back, hosts that would be wiped or installed again, objects that would stay behind,
rotations and boots that are under way. With --to-kubeconfig also whether the other management cluster is ready for them.

Nothing is written. Run it again after each cure, and immediately before the move.

Exit codes: 0 when the move is safe, 2 when something would hang or be lost, 1 for an error.`,
		Example: `  # May the namespace be moved?
  kubectl poolboot move-check -n metal

  # And is the other management cluster ready for it?
  kubectl poolboot move-check -n metal --to-kubeconfig other.kubeconfig`,
		Args:                  cobra.NoArgs,
		DisableFlagsInUseLine: true,
		RunE:                  func(cmd *cobra.Command, _ []string) error { return m.run(cmd.Context()) },
	}
	cmd.Flags().StringVar(&m.to, "to-kubeconfig", "", "path to the kubeconfig file of the other management cluster")
	offerOutputs(cmd, &m.output, "json or yaml; without it, text", "json", "yaml")
	offerConnection(cmd, to)
	return cmd
}

// byPath opens the management cluster of a kubeconfig file.
func byPath(path string) (client.Reader, error) {
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: liveScheme()})
}

func (m *moveCheck) run(ctx context.Context) error {
	if m.output != "" && m.output != "json" && m.output != "yaml" {
		return fmt.Errorf("--output %s is not known: use json or yaml, or leave it out", m.output)
	}
	live, namespace, _, err := m.open()
	if err != nil {
		return err
	}
	found, err := gatherMove(ctx, live, namespace)
	if err != nil {
		return err
	}
	checked := found.check()
	if m.to != "" {
		there, err := m.target(m.to)
		if err != nil {
			return fmt.Errorf("--to-kubeconfig %s: %w", m.to, err)
		}
		traps, err := found.checkTarget(ctx, live, there)
		if err != nil {
			return fmt.Errorf("--to-kubeconfig %s: %w", m.to, err)
		}
		checked.add(traps...)
	}
	if err := checked.print(m.streams.Out, m.output); err != nil {
		return err
	}
	if !checked.Safe {
		return &todoError{of: "clusterctl move of namespace " + namespace, things: checked.count()}
	}
	return nil
}

// add adds traps, the worst first.
func (c *moveChecked) add(traps ...trap) {
	order := map[Effect]int{Lost: 0, Hangs: 1, Note: 2}
	for _, t := range traps {
		at := len(c.Traps)
		for at > 0 && order[c.Traps[at-1].Effect] > order[t.Effect] {
			at--
		}
		c.Traps = append(c.Traps[:at], append([]trap{t}, c.Traps[at:]...)...)
		c.Safe = c.Safe && t.Effect == Note
	}
}

// count is how many traps would hang the move or lose something.
func (c *moveChecked) count() (n int) {
	for _, t := range c.Traps {
		if t.Effect != Note {
			n++
		}
	}
	return n
}

func (c *moveChecked) print(out io.Writer, output string) error {
	switch output {
	case "json":
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(c)
	case "yaml":
		document, err := yaml.Marshal(c)
		if err == nil {
			_, err = out.Write(document)
		}
		return err
	}
	lines := tabwriter.NewWriter(out, 6, 4, 3, ' ', 0)
	for _, t := range c.Traps {
		fmt.Fprintf(lines, "%s\t%s\n", t.Effect, printable(t.Object))
		fmt.Fprintf(lines, "\t%s\n\tTo do: %s\n", printable(t.Message), printable(t.Cure))
	}
	if err := lines.Flush(); err != nil {
		return err
	}
	verdict := "safe to move"
	if !c.Safe {
		verdict = fmt.Sprintf("NOT safe to move: %d would hang or be lost", c.count())
	}
	_, err := fmt.Fprintf(out, "namespace %s: %d objects would be moved; %s\n", c.Namespace, c.Moved, verdict)
	return err
}
