package adopt

import (
	"context"
	_ "embed" // install-agent.sh
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// formats are the values of --as.
var formats = map[string]func(*agent) (string, error){"script": (*agent).script, "cloud-config": (*agent).cloudConfig, "ignition": (*agent).ignition, "kubeadm": (*agent).kubeadm}

// installOptions are those of the command install-agent.
type installOptions struct {
	streams    genericiooptions.IOStreams
	connection input.Connection
	format     string
}

// NewInstallAgent returns the command install-agent.
func NewInstallAgent(streams genericiooptions.IOStreams, to input.Connection) *cobra.Command {
	o := &installOptions{streams: streams, connection: to}
	names := []string{"script", "cloud-config", "ignition", "kubeadm"}
	cmd := &cobra.Command{
		Use:   "install-agent NAME [--format FORMAT]",
		Short: "Print what installs the agent on an adopted host",
		Long: `Print what installs the agent on the host of a PoolbootConfig that adopts a Node: two units, a script that downloads the
agent once the kubelet has a certificate, and the CA of the config server. It has no secrets, and is the same for all
hosts of a config server: who the host is says the certificate of its kubelet.

Formats: script is a shell script that root runs on a host, also again, and with the argument remove to remove it all.
cloud-config and ignition are for the user data of new hosts, and kubeadm for the spec of a KubeadmConfigTemplate.`,
		Example: `  # Install the agent on a host that runs
  kubectl poolboot install-agent edge-7 -n metal | ssh root@edge-7 sh

  # Remove it from a host that was returned to what it was
  kubectl poolboot install-agent edge-7 -n metal | ssh root@edge-7 sh -s remove

  # New hosts of the kubeadm bootstrap provider
  kubectl poolboot install-agent edge-7 -n metal --format kubeadm`,
		Args:                  cli.OneName("PoolbootConfig", "kubectl get poolbootconfigs lists them"),
		ValidArgsFunction:     input.CompleteFirst(input.CompleteFromCluster(to, input.Configs), cobra.ShellCompDirectiveNoFileComp),
		DisableFlagsInUseLine: true,
		PreRunE: func(*cobra.Command, []string) error {
			if formats[o.format] == nil {
				return fmt.Errorf("--format %s is not known: use %s", o.format, strings.Join(names, ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().StringVar(&o.format, "format", names[0], "what to print: "+strings.Join(names, ", "))
	cli.AddCompletion(cmd, "format", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	input.AddConnectionFlags(cmd, to)
	return cmd
}

func (o *installOptions) run(ctx context.Context, name string) error {
	cluster, err := o.connection.Open()
	if err != nil {
		return err
	}
	config := &bootstrapv1.PoolbootConfig{}
	if err := cluster.Source().GetNamed(ctx, name, config); err != nil {
		return err
	}
	server := config.Status.ConfigServer
	switch {
	case !record.IsAdopted(config):
		return fmt.Errorf("the PoolbootConfig %s adopts no Node: its host gets its agent when it boots. Name one that kubectl poolboot adopt printed", record.Key(config))
	case server.URL == "":
		return fmt.Errorf("the PoolbootConfig %s has no status.configServer yet: retry, or read its conditions", record.Key(config))
	}
	files, err := join.Offer{ServerURL: server.URL, ServerCA: []byte(server.CertificateAuthority)}.AdoptionFiles()
	if err != nil {
		return fmt.Errorf("the PoolbootConfig %s: status.configServer.url: %w", record.Key(config), err)
	}
	a, err := newAgent(files)
	if err != nil {
		return err
	}
	printed, err := formats[o.format](a)
	if err != nil {
		return err
	}
	_, err = io.WriteString(o.streams.Out, printed)
	return err
}

// agent is what installs the agent on a host.
type agent struct {
	config ignition.Config
	files  []file
	units  []string
}

// file is a file that the host gets.
type file struct {
	path, mode, content string
}

// newAgent returns what installs the agent, from the configuration that has it.
func newAgent(config ignition.Config) (*agent, error) {
	a := &agent{config: config}
	for _, f := range config.Storage.Files {
		content, err := hosttree.Decode(f.Contents, nil)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Path, err)
		}
		a.files = append(a.files, file{f.Path, fmt.Sprintf("%04o", ptr.Deref(f.Mode, 0o644)), string(content)})
	}
	for _, u := range config.Systemd.Units {
		a.files = append(a.files, file{path.Join(ignition.UnitDirectory, u.Name), "0644", ptr.Deref(u.Contents, "")})
		a.units = append(a.units, u.Name)
	}
	return a, nil
}

// commands start the agent when its files are there.
func (a *agent) commands() []string {
	return []string{"systemctl daemon-reload", "systemctl enable --now " + strings.Join(a.units, " ")}
}

//go:embed install-agent.sh
var installScript string

// script returns a script for a host that runs.
func (a *agent) script() (string, error) {
	var s strings.Builder
	s.WriteString(`#!/bin/sh
# Installs the agent of Poolboot on this host, for root. It can run again. With the argument remove, it removes the agent.
set -eu

write_files() {
`)
	paths := []string{assignment.SettingsPath} // the host writes it
	for _, f := range a.files {
		fmt.Fprintf(&s, "\twrite %s %s '%s'\n", f.path, f.mode, strings.ReplaceAll(f.content, "'", `'\''`))
		paths = append(paths, f.path)
	}
	s.WriteString("}\n\n")
	for _, variable := range [][2]string{
		{"units", strings.Join(a.units, " ")}, {"installer", ignition.InstallAgentUnit}, {"files", strings.Join(paths, " ")},
		{"state", ignition.StateDirectory}, {"directory", ignition.OwnDirectory}, {"config", ignition.MachineConfigPath},
	} {
		fmt.Fprintf(&s, "%s='%s'\n", variable[0], variable[1])
	}
	s.WriteString(installScript)
	return s.String(), nil
}

// cloudConfig returns user data for cloud-init.
func (a *agent) cloudConfig() (string, error) {
	return "#cloud-config\n" + a.lists("write_files", "runcmd"), nil
}

// maxKubeadmFile is how large a file in a KubeadmConfig can be, in characters.
const maxKubeadmFile = 10240

// kubeadm returns fields of the spec of a KubeadmConfig.
func (a *agent) kubeadm() (string, error) {
	if i := slices.IndexFunc(a.files, func(f file) bool { return len(f.content) > maxKubeadmFile }); i >= 0 {
		return "", fmt.Errorf("--format kubeadm: %s has more than %d bytes, which a file of a KubeadmConfig can't have: put the file of --format cloud-config into a Secret, and name that in contentFrom",
			a.files[i].path, maxKubeadmFile)
	}
	return "# In spec.template.spec of a KubeadmConfigTemplate: Machines that exist do not get it.\n" + a.lists("files", "postKubeadmCommands"), nil
}

// lists returns lists in YAML of the files and the commands.
func (a *agent) lists(files, commands string) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s:\n", files)
	for _, f := range a.files {
		fmt.Fprintf(&s, "- path: %s\n  owner: root:root\n  permissions: %q\n  content: %s\n", f.path, f.mode, scalar(f.content))
	}
	fmt.Fprintf(&s, "%s:\n", commands)
	for _, command := range a.commands() {
		fmt.Fprintf(&s, "- %s\n", command)
	}
	return s.String()
}

// scalar returns a text of a map in a list as YAML has it: as its lines if it has nothing that YAML changes in them.
func scalar(text string) string {
	isUnusual := func(r rune) bool { return r != '\n' && r != '\t' && (r < ' ' || r > '~') }
	lines, ends := strings.CutSuffix(text, "\n")
	if lines == "" || !ends || strings.ContainsFunc(text, isUnusual) || strings.ContainsAny(lines[:1], " \t\n") || strings.HasSuffix(lines, "\n") {
		quoted, err := utiljson.Marshal(text)
		utilruntime.Must(err)
		return string(quoted)
	}
	return "|\n    " + strings.ReplaceAll(lines, "\n", "\n    ")
}

// ignition returns a configuration of Ignition. It has nothing that is not in the oldest version.
func (a *agent) ignition() (string, error) {
	document, err := ignition.WriteAs(a.config, ignition.VersionsWritten[0])
	return string(document) + "\n", err
}
