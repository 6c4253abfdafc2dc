// Package render is the command kubectl poolboot render: it prints what a pool renders, and from which MachineConfigs.
package render

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/validation"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// formatIgnition is the value of --output for only the Ignition document.
const formatIgnition = "ignition"

// options are those of the command line.
type options struct {
	streams genericiooptions.IOStreams
	files   input.Files
	role    string
	cluster string
	output  cli.Output
	explain bool
	// live has the pools and MachineConfigs of a namespace read instead of files.
	live       bool
	connection input.Connection
}

// rendered is what render prints: a rendered config without Kubernetes' metadata. Lists are never null.
type rendered struct {
	// Name is the rendered config's name, which contains a hash of its content.
	Name            string          `json:"name"`
	Ignition        json.RawMessage `json:"ignition"`
	KernelArguments []string        `json:"kernelArguments"`
	Extensions      []string        `json:"extensions"`
	FIPS            bool            `json:"fips"`
	KernelType      string          `json:"kernelType"`
	// OSImageURL is empty unless a MachineConfig sets it.
	OSImageURL string `json:"osImageURL,omitempty"`
	// BaseOSExtensionsContainerImage is empty unless a MachineConfig sets it.
	BaseOSExtensionsContainerImage string `json:"baseOSExtensionsContainerImage,omitempty"`
}

// New returns the command render.
func New(streams genericiooptions.IOStreams, to input.Connection) *cobra.Command {
	o := &options{streams: streams, files: input.Files{Streams: streams, Validate: true}, connection: to}
	cmd := &cobra.Command{
		Use:   "render (-f FILE... | --live) --pool ROLE",
		Short: "Print what a pool renders",
		Long: `Print what a pool renders from its MachineConfigs, as the controllers do.

It merges the MachineConfigs that the pool "worker" selects, then the further ones that the pool itself selects, each in
the order of their names; the later one wins. It reads Ignition 2.0 to 2.4 and 3.0 to 3.6, and Butane. The same content
gets the same name.

MachineConfigPools and MachineConfigs come from files or, with --live, from a namespace of the management cluster.
kubectl get pbpool,pbmconf -o yaml prints them for a file.`,
		Example: `  # The configuration of machines of the pool infra
  kubectl poolboot render -f pools.yaml -f machineconfigs --pool infra

  # The same as YAML
  kubectl poolboot render -f pools.yaml,machineconfigs --pool infra -o yaml

  # The MachineConfig that every file, unit, user and kernel argument came from
  kubectl poolboot render -f pools.yaml -f machineconfigs --pool infra --explain

  # Only the Ignition document
  kubectl poolboot render -f pools.yaml -f machineconfigs --pool infra -o ignition > infra.ign`,
		DisableFlagsInUseLine: true,
		RunE:                  func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	o.files.AddFlag(cmd, "filename", "f", "the MachineConfigPools and MachineConfigs")
	cmd.Flags().BoolVar(&o.live, "live", false, "read the MachineConfigPools and MachineConfigs of the namespace from the management cluster instead of files")
	cmd.MarkFlagsMutuallyExclusive("filename", "live")
	cli.AddPoolFlag(cmd, &o.role, o.files.Complete(0, input.PoolRoles, to))
	input.AddClusterFlag(cmd, &o.cluster, o.files.Complete(0, input.PoolClusters, to))
	cmd.Flags().BoolVar(&o.explain, "explain", false, "print which MachineConfig each entry came from")
	o.output.AddFlag(cmd, "JSON or, with --explain, a table", cli.FormatJSON, cli.FormatYAML, cli.FormatWide, formatIgnition)
	input.AddConnectionFlags(cmd, to)
	return cmd
}

func (o *options) run(ctx context.Context, args []string) error {
	source, err := o.open(args)
	if err != nil {
		return err
	}
	pools, err := source.Pools(ctx, source.Namespace, o.cluster)
	if err != nil {
		return err
	}
	source.AddWorker(pools)
	configs, err := source.MachineConfigs(ctx, pools.Cluster)
	if err != nil {
		return err
	}
	config, err := pool.Render(o.role, pools.Items, configs)
	if err != nil {
		return source.Locate(explainConfigs(source.ExplainMissing(err, o.role), o.role, pools.Items, configs))
	}
	if err := source.Locate(o.checkKeys(source, configs, config.Source)); err != nil {
		return err
	}
	for _, note := range config.Notes {
		fmt.Fprintln(o.streams.ErrOut, "note:", source.LocateText(note))
	}
	if o.explain {
		o.noteDisks(source, pools.Items, config.Origins)
		return o.printOrigins(config)
	}
	return o.print(config)
}

// explainConfigs returns everything that is wrong with each MachineConfig of a pool, instead of an error about the
// first mistake in one of them. Other errors are returned too.
func explainConfigs(err error, role string, pools []poolv1.MachineConfigPool, configs []poolv1.MachineConfig) error {
	var first *pool.RenderError
	if !errors.As(err, &first) {
		return err
	}
	all, roles := []error{err}, []string{role}
	if pool.IsCustom(role) {
		roles = append(roles, poolv1.RoleWorker)
	}
	for i := range configs {
		config := &configs[i]
		isSelected := slices.ContainsFunc(pools, func(p poolv1.MachineConfigPool) bool {
			return slices.Contains(roles, p.Spec.PoolRole) && pool.Selects(p, config.Labels)
		})
		if !isSelected || pool.IsRendered(config) {
			continue
		}
		_, wrong := input.ValidateConfig(config, pools...)
		for _, one := range wrong {
			all = append(all, fmt.Errorf("%s %q: %s: %s", input.ConfigKind.Kind, config.Name, one.Field, input.DescribeField(one)))
		}
		if len(wrong) > 0 && config.Name == first.MachineConfig {
			all[0] = nil
		}
	}
	return errors.Join(all...)
}

// checkKeys prints what the webhook warns of in rendered MachineConfigs. Keys that Ignition ignores with their content
// are an error, as in the webhook; of a cluster they are warnings, because its controllers render them.
func (o *options) checkKeys(source *input.Source, configs []poolv1.MachineConfig, rendered []string) error {
	var errs []error
	for _, config := range configs {
		if !slices.Contains(rendered, config.Name) {
			continue
		}
		warnings, _ := validation.MachineConfig(&config) // its errors are those of the render
		if config.Spec.Config != nil {
			_, err := ignition.CheckKeys(config.Spec.Config.Raw)
			if lost := (*ignition.ParseError)(nil); o.live && errors.As(err, &lost) {
				for _, problem := range lost.Problems {
					warnings = append(warnings, fmt.Sprintf("spec.config.%s: %s", problem.Path, problem.Message))
				}
			} else if err != nil {
				errs = append(errs, fmt.Errorf("MachineConfig %q: spec.config: %w", config.Name, err))
			}
		}
		for _, warning := range warnings {
			fmt.Fprintln(o.streams.ErrOut, "warning:", source.LocateText(fmt.Sprintf("MachineConfig %q: %s", config.Name, warning)))
		}
	}
	return errors.Join(errs...)
}

// open returns the files or, with --live, the management cluster.
func (o *options) open(args []string) (*input.Source, error) {
	switch {
	case !o.live && len(o.files.Names) == 0:
		return nil, errors.New("set --filename: name the files, or set --live to read the management cluster")
	case o.live && len(args) > 0:
		return nil, fmt.Errorf("%s: files and --live exclude each other: leave one of them out", args[0])
	}
	return input.OpenSource(&o.files, args, o.connection)
}

func (o *options) print(config *pool.Rendered) error {
	if o.output.Format == cli.FormatWide {
		return errors.New("--output wide is for the table of --explain: set both, or use json, yaml or ignition")
	}
	answer := rendered{
		Name:            config.Name,
		Ignition:        config.Spec.Config.Raw,
		KernelArguments: append([]string{}, config.Spec.KernelArguments...),
		Extensions:      append([]string{}, config.Spec.Extensions...),
		FIPS:            *config.Spec.FIPS,
		KernelType:      config.Spec.KernelType,
		OSImageURL:      config.Spec.OSImageURL,

		BaseOSExtensionsContainerImage: config.Spec.BaseOSExtensionsContainerImage,
	}
	return o.output.Print(o.streams.Out, answer, func(out io.Writer) error {
		if o.output.Format != formatIgnition {
			return cli.PrintJSON(out, answer)
		}
		_, err := fmt.Fprintf(out, "%s\n", answer.Ignition) // byte for byte as it is stored and served
		return err
	})
}

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
		return fmt.Errorf("--output %s can't be used with --explain: use json, yaml or wide, or leave the flag out", o.output.Format)
	}
	answer := origins{
		Name:    config.Name,
		Source:  append([]string{}, config.Source...),
		Entries: append([]pool.Origin{}, config.Origins...),
	}
	return o.output.Print(o.streams.Out, answer, answer.table)
}

// noteDisks prints which entries running hosts do not get if the pool has other disks for new hosts only, and how many
// hosts have others.
func (o *options) noteDisks(source *input.Source, pools []poolv1.MachineConfigPool, entries []pool.Origin) {
	p, err := pool.OfRole(pools, o.role)
	if err != nil {
		return
	}
	parent, _ := pool.ParentOf(p, pools)
	var disks []string
	for _, entry := range entries {
		if slices.Contains([]pool.Kind{pool.KindDisk, pool.KindRaid, pool.KindLuks, pool.KindFilesystem}, entry.Kind) {
			disks = append(disks, string(entry.Kind)+" "+entry.Name)
		}
	}
	hosts := ptr.Deref(p.Status.OutdatedDisksHostCount, 0)
	if pool.UpdatePolicyOf(p, parent).KeepsDisks && len(disks)+int(hosts) > 0 {
		fmt.Fprintln(o.streams.ErrOut, "note:", source.LocateText(fmt.Sprintf("MachineConfigPool %q: spec.updates.diskPolicy is NewHostsOnly: a host has the disks with which it was installed, "+
			"and these entries apply only to new hosts (%d): %s; running hosts with other disks: %d", p.Name, len(disks), cmp.Or(strings.Join(disks, ", "), "none"), hosts)))
	}
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
