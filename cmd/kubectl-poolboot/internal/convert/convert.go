// Package convert is the command kubectl poolboot convert: it converts OpenShift's objects to Poolboot's, and Ignition
// and Butane to the Ignition version that Poolboot uses.
package convert

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// options are those of the command line.
type options struct {
	streams            genericiooptions.IOStreams
	files              input.Files
	cluster, namespace string
	ignition, butane   string
	filesDir           string
	skipRefused        bool
	containerRuntime   string
	output             cli.Output
}

// New returns the command convert.
func New(streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{streams: streams, files: input.Files{Streams: streams, Settings: input.SettingsKinds, SkipRefused: true}} // what is wrong with the other objects is reported too
	cmd := &cobra.Command{
		Use:   "convert (-f FILE... --cluster CLUSTER -n NAMESPACE | --ignition FILE | --butane FILE)",
		Short: "Convert OpenShift's objects to Poolboot's, or Ignition and Butane to spec 3.5",
		Long: `Convert OpenShift's MachineConfigPools and MachineConfigs to Poolboot's, as YAML for kubectl apply.

Names, labels, annotations, selectors and the Ignition with its spec version are kept. A pool's role is its name. A
warning on standard error names everything that is left out: fields that Poolboot does not have, other kinds, rendered
MachineConfigs, and the pool "arbiter" with the MachineConfigs that only it selects. The pool "master" gets the role
control-plane. A KubeletConfig becomes the kubelet section of each pool that it selects; a warning names fields that a
pool can't set or that OpenShift computes. The node disruption policies and the overrides for disks of a
MachineConfiguration become those of the pools "worker", from which custom pools inherit them, and "master".
ContainerRuntimeConfigs, mirror sets and the registries of the Image become MachineConfigs with files for the container
runtime that --container-runtime names. What OpenShift's controllers generate is left out, and the pools "worker" and
"master" are added or completed as OpenShift's built-in ones if something needs them. What Poolboot would refuse to
store is an error, and then nothing is printed; with --skip-refused, everything else is printed, and the exit code is 3.

With --ignition or --butane, one document is converted to Ignition 3.5, the version that Poolboot uses. A Butane
document of the variant "openshift" becomes a whole MachineConfig. --files-dir names the folder of the local files of a
Butane document.`,
		Example: `  # Pools and MachineConfigs of the cluster infra-1 from files, for the namespace edge
  kubectl poolboot convert -f pools.yaml -f machineconfigs --cluster infra-1 -n edge

  # Everything that Poolboot accepts, and a list of the rest
  kubectl poolboot convert -f pools.yaml -f machineconfigs --skip-refused --cluster infra-1 -n edge

  # Only the MachineConfig 51-infra
  kubectl poolboot convert -f machineconfigs/51-infra.yaml --cluster infra-1 -n edge

  # Ignition 2.0 to 2.4 and 3.0 to 3.6 to 3.5
  kubectl poolboot convert --ignition infra.ign

  # Butane to Ignition 3.5
  kubectl poolboot convert --butane infra.bu

  # Butane with local files, which are below the current folder
  kubectl poolboot convert --butane infra.bu --files-dir .`,
		DisableFlagsInUseLine: true,
		RunE:                  func(_ *cobra.Command, args []string) error { return o.run(args) },
	}
	flags := cmd.Flags()
	o.files.AddFlag(cmd, "filename", "f", "OpenShift's MachineConfigPools and MachineConfigs")
	flags.BoolVar(&o.skipRefused, "skip-refused", false, "convert everything else if an object is refused, list it, and exit with 3")
	flags.StringVar(&o.cluster, "cluster", "", "Cluster of the pools")
	flags.StringVarP(&o.namespace, "namespace", "n", "", "namespace of the objects; with --butane, that of a MachineConfig")
	flags.StringVar(&o.containerRuntime, "container-runtime", "", "container runtime of the hosts, crio (default) or containerd, for ContainerRuntimeConfigs, mirrors and registries")
	flags.StringVar(&o.ignition, "ignition", "", "file with an Ignition document in JSON; - for standard input")
	flags.StringVar(&o.butane, "butane", "", "file with a Butane document; - for standard input")
	flags.StringVar(&o.filesDir, "files-dir", "", "folder of the local files in a Butane document; without it, local files are refused")
	o.output.AddFlag(cmd, "YAML", cli.FormatJSON, cli.FormatYAML)
	utilruntime.Must(cmd.MarkFlagFilename("ignition", "ign", "json"))
	utilruntime.Must(cmd.MarkFlagFilename("butane", "bu", "yaml", "yml"))
	utilruntime.Must(cmd.MarkFlagDirname("files-dir"))
	cmd.MarkFlagsMutuallyExclusive("ignition", "namespace")
	cmd.MarkFlagsMutuallyExclusive("ignition", "files-dir")
	cmd.MarkFlagsMutuallyExclusive("filename", "files-dir")
	cmd.MarkFlagsMutuallyExclusive("butane", "cluster")
	cmd.MarkFlagsMutuallyExclusive("ignition", "cluster")
	cli.AddCompletion(cmd, "cluster", cobra.NoFileCompletions)
	cli.AddCompletion(cmd, "namespace", cobra.NoFileCompletions)
	cli.AddCompletion(cmd, "container-runtime", cobra.FixedCompletions(containerRuntimes, cobra.ShellCompDirectiveNoFileComp))
	cmd.MarkFlagsMutuallyExclusive("ignition", "container-runtime")
	cmd.MarkFlagsMutuallyExclusive("butane", "container-runtime")
	cmd.MarkFlagsOneRequired("filename", "ignition", "butane")
	cmd.MarkFlagsMutuallyExclusive("filename", "ignition", "butane")
	return cmd
}

func (o *options) run(args []string) error {
	switch {
	case o.files.Names != nil:
		return o.convertObjects(args)
	case len(args) > 0:
		return fmt.Errorf("%s is one file too many: --ignition and --butane read one file", strings.Join(args, ", "))
	case o.ignition != "":
		return o.convertIgnition()
	}
	return o.convertButane()
}

// convertObjects prints the objects in files as Poolboot's.
func (o *options) convertObjects(args []string) error {
	if o.cluster == "" || o.namespace == "" {
		return errors.New("set --cluster and --namespace: --filename, --cluster and --namespace belong together")
	}
	if problems := validation.IsDNS1123Subdomain(o.cluster); len(problems) > 0 {
		return fmt.Errorf("--cluster %s: %s", o.cluster, strings.Join(problems, "; "))
	}
	if problems := validation.IsDNS1123Label(o.namespace); len(problems) > 0 {
		return fmt.Errorf("--namespace %s: %s", o.namespace, strings.Join(problems, "; "))
	}
	if o.containerRuntime != "" && !slices.Contains(containerRuntimes, o.containerRuntime) {
		return fmt.Errorf("--container-runtime %s: set %s", o.containerRuntime, strings.Join(containerRuntimes, " or "))
	}
	found, err := o.files.Objects(args)
	if err == nil {
		err = found.CheckNotEmpty()
	}
	if err != nil {
		return err
	}
	converted, remarks, errs := fromOpenShift(found, o.cluster, o.namespace, o.containerRuntime)
	for _, remark := range remarks {
		fmt.Fprintln(o.streams.ErrOut, remark)
	}
	refused := input.InOrder(append(found.Refused, errs...)...)
	if len(refused) > 0 && !o.skipRefused {
		return errors.Join(refused...)
	}
	if err := o.output.PrintManifest(o.streams.Out, converted...); err != nil {
		return err
	}
	for _, err := range refused {
		fmt.Fprintln(o.streams.ErrOut, "refused:", err)
	}
	if len(refused) > 0 {
		return cli.Incomplete(fmt.Errorf("%d refused and left out: correct what is listed above, and convert again", input.CountObjects(refused)))
	}
	return nil
}

// readDocument returns the text of a file, and its name for messages.
func (o *options) readDocument(file string) (name string, text []byte, err error) {
	if file == input.Stdin {
		name = "standard input"
		text, err = io.ReadAll(o.streams.In)
	} else {
		name = file
		text, err = os.ReadFile(file)
	}
	if err == nil {
		text, err = input.Normalize(text)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return name, text, err
}

// convertIgnition prints an Ignition document in the version that Poolboot uses. It refuses keys that Ignition would
// ignore with their content, and warns of other keys that it ignores.
func (o *options) convertIgnition() error {
	name, text, err := o.readDocument(o.ignition)
	if err != nil {
		return err
	}
	whole := input.NewText(name, text)
	config, err := ignition.Parse(text)
	warnings, lost := ignition.CheckKeys(text)
	for _, problem := range warnings {
		fmt.Fprintf(o.streams.ErrOut, "warning: %s\n", whole.Locate(problem))
	}
	if err == nil {
		err = ignition.CheckContents(config)
	}
	if err := locate(whole, err, lost); err != nil {
		return err
	}
	return o.printIgnition(config)
}

// printIgnition prints a configuration as JSON or YAML.
func (o *options) printIgnition(config ignition.Config) error {
	raw, err := ignition.Marshal(config)
	if err == nil && o.output.Format == cli.FormatYAML {
		raw, err = yaml.JSONToYAML(raw)
	}
	if err == nil {
		_, err = fmt.Fprintf(o.streams.Out, "%s\n", bytes.TrimSpace(raw))
	}
	return err
}

// locate returns the problems in errors about a document, with the place of each.
func locate(whole *input.Text, errs ...error) error {
	var all []error
	for _, err := range errs {
		var malformed *ignition.ParseError
		if !errors.As(err, &malformed) {
			all = append(all, err)
			continue
		}
		for _, problem := range malformed.Problems {
			all = append(all, whole.Locate(problem))
		}
	}
	return errors.Join(input.InOrder(all...)...)
}
