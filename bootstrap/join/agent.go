package join

import (
	_ "embed" // install-agent.sh
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/utils/ptr"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// Agent is the agent of a host: the program that keeps the host in the configuration of its pool after it joined.
type Agent struct {
	// Settings are what the agent needs to reach the config server.
	Settings assignment.Settings
	// Program is what the host installs at its first boot. Later, the agent replaces itself.
	Program Program
	// IsLate is true for a host that boots without the config server. It has no Program, and downloads the one in its
	// assignment once it reaches the config server.
	IsLate bool
}

// Program is a program that a host downloads.
type Program struct {
	// URL is where the gzip file of the program is.
	URL string
	// SHA512 is the hash of the uncompressed program in hex.
	SHA512 string
}

// registerTimeout limits, in seconds, how long the registration can delay the kubelet. The program itself stops after a
// minute.
const registerTimeout = "75"

// addUnits adds the settings and the units of the agent. It adds nothing if there is no agent.
func (a *Agent) addUnits(config *ignition.Config) {
	if a == nil {
		return
	}
	settings, _ := json.Marshal(a.Settings) // strings always encode
	config.Storage.Files = append(config.Storage.Files, newFile(assignment.SettingsPath, 0o644, append(settings, '\n')))
	config.Systemd.Units = append(config.Systemd.Units,
		newEnabledUnit(assignment.AgentUnit, agentUnit()),
		newEnabledUnit(assignment.RegisterUnit, registerUnit()))
	if a.IsLate {
		config.Systemd.Units = append(config.Systemd.Units, newEnabledUnit(ignition.InstallAgentUnit, installAgentUnit()))
	}
}

// addProgram adds the program of the agent, in a directory that only root can read. Ignition downloads it, and verifies
// it before the host starts. For a late agent, it adds what downloads it later. It adds nothing if there is no agent.
func (a *Agent) addProgram(config *ignition.Config, node, clusterURL string) {
	if a == nil {
		return
	}
	state := newDirectory(ignition.StateDirectory)
	state.Mode = ptr.To(0o700)
	config.Storage.Directories = append(config.Storage.Directories, state)
	if a.IsLate {
		a.addInstaller(config, node, clusterURL)
		return
	}
	config.Storage.Files = append(config.Storage.Files, types.File{
		Node: types.Node{Path: assignment.ProgramPath, Overwrite: ptr.To(true)},
		FileEmbedded1: types.FileEmbedded1{
			Mode: ptr.To(0o755),
			Contents: types.Resource{
				Source:       ptr.To(a.Program.URL),
				Compression:  ptr.To("gzip"),
				Verification: types.Verification{Hash: ptr.To("sha512-" + a.Program.SHA512)},
			},
		},
	})
}

const (
	installScriptPath = ignition.OwnDirectory + "/install-agent.sh"
	serverCAPath      = ignition.OwnDirectory + "/config-server.pem"
)

//go:embed install-agent.sh
var installScript string

// addInstaller adds the script that downloads the program, with the CA of the config server.
func (a *Agent) addInstaller(config *ignition.Config, node, clusterURL string) {
	// The URLs were parsed before.
	nodeURL, _ := url.JoinPath(clusterURL, "api/v1/nodes", node)
	updateURL, _ := a.Settings.UpdateURL()
	agentsURL, _ := url.JoinPath(a.Settings.Server, "agent")
	caPath := addCA(config, a.Settings.CA)
	script := variables([][2]string{
		{"node", nodeURL}, {"annotation", agentv1.OfferedAnnotation}, {"cluster", ignition.ClusterCAPath},
		{"assignment", updateURL}, {"agents", agentsURL}, {"ca", caPath}, {"certificate", kubeletCertificate},
		{"program", assignment.ProgramPath}, {"unit", assignment.AgentUnit},
	})
	config.Storage.Files = append(config.Storage.Files, newFile(installScriptPath, 0o644, []byte(script+"locate() { :; }\n"+installScript)))
}

//go:embed locate.sh
var locateScript string

// AdoptionFiles returns what installs the agent on a host that Poolboot did not boot: a script, the CA of the config
// server, and the units that run the script and the agent. It is the same for all hosts, and has no secrets.
func (o Offer) AdoptionFiles() (ignition.Config, error) {
	config := ignition.New()
	settings, _ := json.Marshal(assignment.Settings{ // strings always encode
		Server: o.ServerURL, CA: string(o.ServerCA), Namespace: "@namespace@", Name: "@name@", PointerID: bootstrapv1.AdoptedPointerID,
	})
	agents, err := url.JoinPath(o.ServerURL, "agent")
	if err != nil {
		return config, err
	}
	caPath := addCA(&config, string(o.ServerCA))
	script := variables([][2]string{
		{"kubeconfig", ignition.KubeconfigPath}, {"server", strings.TrimSuffix(o.ServerURL, "/")}, {"record", poolv1.NodeConfigAnnotation},
		{"pointer", bootstrapv1.AdoptedPointerID}, {"settings", assignment.SettingsPath}, {"content", string(settings)},
		{"annotation", agentv1.OfferedAnnotation}, {"cluster", assignment.ProgramPath + ".ca"}, {"agents", agents}, {"ca", caPath},
		{"certificate", kubeletCertificate}, {"program", assignment.ProgramPath}, {"unit", assignment.AgentUnit},
	}) + locateScript + installScript
	config.Storage.Files = append(config.Storage.Files, newFile(installScriptPath, 0o644, []byte(script)))
	config.Systemd.Units = []types.Unit{newEnabledUnit(assignment.AgentUnit, agentUnit()), newEnabledUnit(ignition.InstallAgentUnit, installAgentUnit())}
	return config, nil
}

// variables returns the lines of a shell script that set variables.
func variables(values [][2]string) string {
	var script strings.Builder
	for _, variable := range values {
		fmt.Fprintf(&script, "%s='%s'\n", variable[0], strings.ReplaceAll(variable[1], "'", `'\''`))
	}
	return script.String()
}

// addCA adds the CA of the config server, and returns its path. The path is empty if the host trusts the config server.
func addCA(config *ignition.Config, ca string) string {
	if ca == "" {
		return ""
	}
	config.Storage.Files = append(config.Storage.Files, newFile(serverCAPath, 0o644, []byte(ca)))
	return serverCAPath
}

// installAgentUnit returns the unit that runs the script until there is a program. Nothing waits for it, and it waits
// for nothing: a host can be without a network for ever.
func installAgentUnit() []*unit.UnitOption {
	return []*unit.UnitOption{
		unit.NewUnitOption("Unit", "Description", "Install the agent of this host once it can reach the config server"),
		unit.NewUnitOption("Unit", "ConditionPathExists", "!"+assignment.ProgramPath),
		unit.NewUnitOption("Service", "ExecStart", "/bin/sh "+installScriptPath),
		unit.NewUnitOption("Service", "Restart", "on-failure"),
		unit.NewUnitOption("Service", "RestartSec", "10"),
		wantedByMultiUser(),
	}
}

// agentUnit returns the unit of the agent. The agent changes files, users and units of the host, and runs programs of
// the image that change the boot loader or the operating system. So it has the rights of root and the mounts of the
// host, and the unit only takes away what neither of them needs.
func agentUnit() []*unit.UnitOption {
	options := []*unit.UnitOption{
		unit.NewUnitOption("Unit", "Description", "Keep this host in the configuration of its pool"),
		unit.NewUnitOption("Unit", "Wants", "network-online.target"),
		unit.NewUnitOption("Unit", "After", "network-online.target "+assignment.RegisterUnit),
		unit.NewUnitOption("Unit", "ConditionPathExists", assignment.ProgramPath),
		unit.NewUnitOption("Unit", "StartLimitIntervalSec", "0"), // it is restarted without a limit, every RestartSec
		unit.NewUnitOption("Service", "ExecStartPre", guardCommand),
		unit.NewUnitOption("Service", "ExecStart", agentCommand("run")),
		unit.NewUnitOption("Service", "ExecStopPost", "-"+agentCommand("stopped")),
		unit.NewUnitOption("Service", "Restart", "always"),
		unit.NewUnitOption("Service", "RestartSec", "10"),
		unit.NewUnitOption("Service", "KillMode", "mixed"),
		unit.NewUnitOption("Service", "TimeoutStopSec", "30"),
		// An agent that is frozen can't report anything. It is killed, which is reported, and starts again.
		unit.NewUnitOption("Service", "WatchdogSec", "30"),
		unit.NewUnitOption("Service", "WatchdogSignal", "SIGKILL"),
	}
	return append(append(options, hardening()...), wantedByMultiUser())
}

// registerUnit returns the unit that has the Node pre-registered before the kubelet starts, in case that it was
// deleted. The kubelet starts after it, but does not require it, so it also starts if the registration fails. The unit
// is skipped while the kubelet has no certificate: then the host has not joined, and its Node was pre-registered for
// its first boot.
func registerUnit() []*unit.UnitOption {
	options := []*unit.UnitOption{
		unit.NewUnitOption("Unit", "Description", "Register the Node of this host before its kubelet starts"),
		unit.NewUnitOption("Unit", "Wants", "network-online.target"),
		unit.NewUnitOption("Unit", "After", "network-online.target"),
		unit.NewUnitOption("Unit", "Before", ignition.KubeletUnit),
		unit.NewUnitOption("Unit", "ConditionPathExists", assignment.ProgramPath),
		unit.NewUnitOption("Unit", "ConditionPathExists", kubeletCertificate),
		unit.NewUnitOption("Service", "Type", "oneshot"),
		unit.NewUnitOption("Service", "RemainAfterExit", "yes"),
		unit.NewUnitOption("Service", "TimeoutStartSec", registerTimeout),
		unit.NewUnitOption("Service", "ExecStart", agentCommand("register")),
		unit.NewUnitOption("Service", "ProtectSystem", "strict"),
		unit.NewUnitOption("Service", "PrivateDevices", "yes"),
		unit.NewUnitOption("Service", "CapabilityBoundingSet", ""),
	}
	return append(append(options, hardening()...), wantedByMultiUser())
}

// agentCommand returns the command line that runs the agent. A shell starts it, because the policies of SELinux in
// images do not allow systemd itself to run programs in /var/lib.
func agentCommand(subcommand string) string {
	return `/bin/sh -c "exec ` + assignment.ProgramPath + " " + subcommand + `"`
}

// guardCommand has the previous program count the starts of one that replaced it, while there is a previous one. If it
// fails, the agent starts all the same.
const guardCommand = `-/bin/sh -c "test ! -x ` + assignment.PreviousProgramPath + ` || exec ` + assignment.PreviousProgramPath + ` guard"`

// hardening returns the settings of both units.
func hardening() []*unit.UnitOption {
	return []*unit.UnitOption{
		unit.NewUnitOption("Service", "LockPersonality", "yes"),
		unit.NewUnitOption("Service", "RestrictRealtime", "yes"),
		unit.NewUnitOption("Service", "RestrictAddressFamilies", "AF_UNIX AF_INET AF_INET6 AF_NETLINK"),
		unit.NewUnitOption("Service", "SystemCallArchitectures", "native"),
	}
}
