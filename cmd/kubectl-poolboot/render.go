package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// render prints what a pool renders.
type render struct {
	reader
	files   []string
	role    string
	cluster string
	output  string
	explain bool
	// live has the pools and MachineConfigs of a namespace read instead of files.
	live bool
	connection
}

// rendered is what render prints: a rendered config without Kubernetes' metadata. Lists are never null.
type rendered struct {
	// Name is the rendered config's name, which holds a hash of its content.
	Name            string          `json:"name"`
	Ignition        json.RawMessage `json:"ignition"`
	KernelArguments []string        `json:"kernelArguments"`
	Extensions      []string        `json:"extensions"`
	FIPS            bool            `json:"fips"`
	KernelType      string          `json:"kernelType"`
	// OSImageURL is there only when a MachineConfig sets it.
	OSImageURL string `json:"osImageURL,omitempty"`
	// BaseOSExtensionsContainerImage is there only when a MachineConfig sets it.
	BaseOSExtensionsContainerImage string `json:"baseOSExtensionsContainerImage,omitempty"`
}

func newRender(streams genericiooptions.IOStreams, to connection) *cobra.Command {
	r := &render{reader: reader{streams: streams}, connection: to}
	cmd := &cobra.Command{
		Use:   "render (-f FILE... | --live) --pool ROLE",
		Short: "Print what a pool renders",
		Long: `Print what a pool renders from its MachineConfigs, as the controllers do.

First come the MachineConfigs that the pool "worker" selects, then those that the pool itself selects beyond them, each in
the order of their names; what comes later wins. Ignition 2.0 to 2.4 and 3.0 to 3.5 and Butane are read. The same content
has the same name.

MachineConfigPools and MachineConfigs come from files or, with --live, from a namespace of the management cluster. kubectl get
pbpool,pbmconf -o yaml prints them for a file.`,
		Example: `  # Everything that machines of the pool infra would get
  kubectl poolboot render -f pools.yaml -f machineconfigs --pool infra

  # The same as YAML
  kubectl poolboot render -f pools.yaml,machineconfigs --pool infra -o yaml

  # Which MachineConfig every file, unit, user and kernel argument came from
  kubectl poolboot render -f pools.yaml -f machineconfigs --pool infra --explain

  # Only the Ignition document
  kubectl poolboot render -f pools.yaml -f machineconfigs --pool infra -o ignition > infra.ign`,
		DisableFlagsInUseLine: true,
		RunE:                  func(cmd *cobra.Command, args []string) error { return r.run(cmd.Context(), args) },
	}
	r.offerOptionalFiles(cmd, &r.files, "filename", "f", "where the MachineConfigPools and MachineConfigs are")
	cmd.Flags().BoolVar(&r.live, "live", false, "read the MachineConfigPools and MachineConfigs of the namespace from the management cluster instead of files")
	cmd.MarkFlagsMutuallyExclusive("filename", "live")
	offerPool(cmd, &r.role)
	offerCluster(cmd, &r.cluster)
	completeFlag(cmd, "pool", r.fromFiles(&r.files, 0, rolesIn, fromCluster(to, liveRoles)))
	completeFlag(cmd, "cluster", r.fromFiles(&r.files, 0, clustersIn, fromCluster(to, liveClusters)))
	cmd.Flags().BoolVar(&r.explain, "explain", false, "print which MachineConfig everything came from, as a table, json or yaml")
	offerOutputs(cmd, &r.output, "json, which is the default, yaml, or ignition for only the Ignition document", "json", "yaml", "ignition")
	offerConnection(cmd, to)
	return cmd
}

func (r *render) run(ctx context.Context, args []string) error {
	write, known := map[string]func(rendered) ([]byte, error){"": asJSON, "json": asJSON, "yaml": asYAML, "ignition": asIgnition}[r.output]
	if !known {
		return fmt.Errorf("--output %s is not known: use json, yaml or ignition", r.output)
	}
	if isControlPlane(r.role) {
		return fmt.Errorf("--pool %s: control plane machines are in no pool, and nothing is rendered for them: name another pool", r.role)
	}
	found, err := r.gather(ctx, args)
	if err != nil {
		return err
	}
	if err := found.ofCluster(r.cluster); err != nil {
		return err
	}
	config, err := pool.Render(r.role, found.pools, found.configs)
	if err != nil && !r.live {
		err = inFiles(err)
	}
	if err != nil {
		return err
	}
	if r.explain {
		return explain(r.streams.Out, config, r.output)
	}
	document, err := write(rendered{
		Name:            config.Name,
		Ignition:        config.Spec.Config.Raw,
		KernelArguments: append([]string{}, config.Spec.KernelArguments...),
		Extensions:      append([]string{}, config.Spec.Extensions...),
		FIPS:            *config.Spec.FIPS,
		KernelType:      config.Spec.KernelType,
		OSImageURL:      config.Spec.OSImageURL,

		BaseOSExtensionsContainerImage: config.Spec.BaseOSExtensionsContainerImage,
	})
	if err != nil {
		return err
	}
	_, err = r.streams.Out.Write(document)
	return err
}

// gather reads from files, or what is live.
func (r *render) gather(ctx context.Context, args []string) (*objects, error) {
	if !r.live && len(r.files) == 0 {
		return nil, fmt.Errorf("required flag(s) \"filename\" not set: name the files, or set --live to read the management cluster")
	}
	if !r.live {
		return r.read(append(r.files, args...)...)
	}
	if len(args) > 0 {
		return nil, fmt.Errorf("%s: files and --live exclude each other: leave one of them out", args[0])
	}
	live, namespace, _, err := r.open()
	if err != nil {
		return nil, err
	}
	stored, _, err := readLive(ctx, live, namespace)
	if err != nil {
		return nil, err
	}
	return &objects{pools: stored.pools, configs: stored.configs, where: "namespace " + namespace + " holds"}, nil
}

func asJSON(config rendered) ([]byte, error) {
	var document bytes.Buffer
	encoder := json.NewEncoder(&document)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(config)
	return document.Bytes(), err
}

func asYAML(config rendered) ([]byte, error) { return yaml.Marshal(config) }

// asIgnition is the Ignition as it is stored and served, byte for byte, and a line's end.
func asIgnition(config rendered) ([]byte, error) { return append(config.Ignition, '\n'), nil }
