package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

// carries prints what a Node of a pool carries.
type carries struct {
	reader
	files   []string
	role    string
	cluster string
	output  string
}

// carried is what labels prints as JSON.
type carried struct {
	Labels map[string]string `json:"labels"`
	Taints []corev1.Taint    `json:"taints"`
}

func newLabels(streams genericiooptions.IOStreams) *cobra.Command {
	c := &carries{reader: reader{streams: streams}}
	cmd := &cobra.Command{
		Use:   "labels -f FILE... --pool ROLE",
		Short: "Print the labels and taints of a pool's Nodes",
		Long: `Print the labels and taints that every Node of a pool is registered with, before anything boots.

The labels are those that the pool's node selector asks for, its nodeLabels, the one that names the pool, and kubernetes.io/os. The taints
are its nodeTaints, and the two that keep pods away until the Node is in its pool and known to Cluster API. A Machine, its
PoolbootConfig and its host may add more; kubernetes.io/hostname is each Node's own name.

Exit codes: 0 with an answer, 2 when no Node can be registered in the pool, 1 for every other error.`,
		Example: `  # What will a Node of the pool infra carry?
  kubectl poolboot labels -f pools.yaml --pool infra

  # For scripts
  kubectl poolboot labels -f pools.yaml --pool infra -o json

  # The pools of a cluster, as kubectl get -o yaml prints them
  kubectl poolboot labels -f - --pool infra < pools.yaml`,
		DisableFlagsInUseLine: true,
		RunE:                  func(_ *cobra.Command, args []string) error { return c.run(args) },
	}
	c.offerFiles(cmd, &c.files, "filename", "f", "where the MachineConfigPools are")
	offerPool(cmd, &c.role)
	offerCluster(cmd, &c.cluster)
	completeFlag(cmd, "pool", c.fromFiles(&c.files, 0, rolesIn, nil))
	completeFlag(cmd, "cluster", c.fromFiles(&c.files, 0, clustersIn, nil))
	offerOutputs(cmd, &c.output, "json; without it, lines", "json")
	return cmd
}

func (c *carries) run(args []string) error {
	if c.output != "" && c.output != "json" {
		return fmt.Errorf("--output %s is not known: use json, or leave it out", c.output)
	}
	if isControlPlane(c.role) {
		return fmt.Errorf("--pool %s: control plane machines are in no pool: name another pool", c.role)
	}
	found, err := c.read(append(c.files, args...)...)
	if err != nil {
		return err
	}
	if err := found.ofCluster(c.cluster); err != nil {
		return err
	}
	of, err := pool.OfRole(found.pools, c.role)
	if err != nil {
		return inFiles(err)
	}
	registered, err := registration.Register(registration.Input{
		NodeName: c.role, // any name: it is not part of the answer
		Pool:     *of,
		Pools:    found.pools,
		Config:   &bootstrapv1.PoolbootConfig{},
	})
	if outside := (*registration.OutsidePoolError)(nil); errors.As(err, &outside) {
		err = fmt.Errorf("MachineConfigPool %q: the labels of its own Nodes don't put them in it: %s: "+
			"change its nodeSelector or nodeLabels, or the other pool's", of.Name, outside.Why)
	}
	if err != nil {
		return &unregistrableError{err}
	}
	delete(registered.Labels, corev1.LabelHostname) // each Node's own
	answer := carried{Labels: registered.Labels, Taints: registered.Taints}
	if c.output == "json" {
		return json.NewEncoder(c.streams.Out).Encode(answer)
	}
	return answer.print(c.streams.Out)
}

// print writes a line for every label and every taint.
func (c carried) print(out io.Writer) error {
	for _, key := range slices.Sorted(maps.Keys(c.Labels)) {
		if _, err := fmt.Fprintf(out, "label %s=%s\n", key, c.Labels[key]); err != nil {
			return err
		}
	}
	for _, taint := range c.Taints {
		if _, err := fmt.Fprintf(out, "taint %s\n", taint.ToString()); err != nil {
			return err
		}
	}
	return nil
}

// unregistrableError says why no Node can be registered in a pool.
type unregistrableError struct{ error }

// Unwrap returns the reason.
func (e *unregistrableError) Unwrap() error { return e.error }
