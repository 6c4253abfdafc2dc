package join

import (
	"crypto/sha256"
	_ "embed" // check.sh and versions.sh
	"fmt"
	"path"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// checkUnitName is the unit that the kubelet and kubeadm join wait for. It fails on a host that was changed.
const checkUnitName = ignition.OwnUnitPrefix + "check.service"

const (
	checkScriptPath = ignition.CheckScriptPath
	checkSumsPath   = ignition.OwnDirectory + "/check.sha256"
	// versionsScriptPath is the script that keeps a host from joining with versions that do not fit the cluster.
	versionsScriptPath = ignition.OwnDirectory + "/versions.sh"
	// reportPath is the curl configuration with which that script reports to the config server.
	reportPath = ignition.OwnDirectory + "/report.conf"
)

// maxFileSize is a size in bytes that no file of an overlay reaches.
const maxFileSize = 1 << 20

//go:embed check.sh
var checkScript []byte

//go:embed versions.sh
var versionsScript []byte

// withCheck adds the check to the configuration of a machine. The check verifies that everything in the configuration
// is on the host, byte for byte, with the checksums of addChecksums. It also verifies that the unit of the kubelet
// takes its flags from variable, which the environment file flags sets. ignition.Guard refuses the mistakes that it
// recognizes in MachineConfigs. The check finds all others: before the host joins, and the agent after an update.
func withCheck(config ignition.Config, variable, flags string) ignition.Config {
	settings := fmt.Sprintf("sums=%s variable=%s flags=%s directory=%s versions=%s\n", checkSumsPath, variable, flags, ignition.KubeletConfigDirectory, versionsScriptPath)
	config.Storage.Files = append(config.Storage.Files, newFile(checkScriptPath, 0o644, append([]byte(settings), checkScript...)))
	config.Systemd.Units = append(config.Systemd.Units, newEnabledUnit(checkUnitName, checkUnit()))
	return config
}

// withVersions adds the script that waits until the kubelet, and kubeadm in the directory unless that is empty, fit the
// API server at the URL. The agent runs it, too, with the check.
func withVersions(config ignition.Config, url, directory, kubelet, kubeconfig string) ignition.Config {
	settings := fmt.Sprintf("url='%s' directory=%s kubelet=%s kubeconfig=%s report=%s header=%s ca=/run/poolboot-cluster.pem certificate=%s cluster=%s\n",
		strings.ReplaceAll(url, "'", `'\''`), directory, kubelet, kubeconfig, reportPath, ignition.ReportHeaderPath, kubeletCertificate, ignition.ClusterCAPath)
	config.Storage.Files = append(config.Storage.Files, newFile(versionsScriptPath, 0o644, append([]byte(settings), versionsScript...)))
	return config
}

// addReport adds the URL and the CA with which the host reports that it does not join. The config server adds the
// token. It adds nothing for a host that boots without the config server.
func (m Machine) addReport(config *ignition.Config) {
	s := m.Reports
	if s.Server == "" {
		return
	}
	address := access.Address{Role: m.Registration.Labels[poolv1.NodePoolLabel], NamespacedName: client.ObjectKey{Namespace: s.Namespace, Name: s.Name}, PointerID: s.PointerID}
	text := fmt.Sprintf("proto = \"=https\"\nurl = %q\n", address.URL(s.Server))
	if caPath := addCA(config, s.CA); caPath != "" {
		text += fmt.Sprintf("cacert = %q\ncapath = \"/dev/null\"\n", caPath)
	}
	config.Storage.Files = append(config.Storage.Files, newFile(reportPath, 0o644, []byte(text)))
}

// addChecksums adds the checksums of everything in a configuration.
func addChecksums(config *ignition.Config) error {
	sums, err := checksumsOf(*config)
	if err != nil {
		return err
	}
	config.Storage.Files = append(config.Storage.Files, newFile(checkSumsPath, 0o644, sums))
	return nil
}

// checkUnit returns the unit that runs the check at every boot until the host has joined. After that, a change cannot
// move the Node to another pool, because the recorded pool decides. And a Node in use must not fail because an
// administrator renewed a certificate manually. The unit also starts if nothing starts the kubelet, and after mounts
// over the files, which the boot need not wait for.
func checkUnit() []*unit.UnitOption {
	return append(newOnlineUnit("Verify the configuration with which this host joins its pool"),
		unit.NewUnitOption("Unit", "ConditionPathExists", "!"+kubeletCertificate),
		unit.NewUnitOption("Unit", "RequiresMountsFor", strings.Join([]string{ignition.OwnDirectory, ignition.KubeletConfigDirectory, path.Dir(ignition.ClusterCAPath)}, " ")),
		unit.NewUnitOption("Service", "Type", "oneshot"),
		unit.NewUnitOption("Service", "RemainAfterExit", "yes"),
		unit.NewUnitOption("Service", "StandardOutput", "journal+console"),
		unit.NewUnitOption("Service", "StandardError", "journal+console"),
		unit.NewUnitOption("Service", "ExecStart", "/bin/sh "+checkScriptPath),
		unit.NewUnitOption("Service", "ExecStart", "/bin/sh "+versionsScriptPath),
		wantedByMultiUser())
}

// requiresCheck returns the settings with which a unit starts only after the check succeeded. A drop-in cannot remove
// Requires or After.
func requiresCheck() []*unit.UnitOption {
	return []*unit.UnitOption{
		unit.NewUnitOption("Unit", "Requires", checkUnitName),
		unit.NewUnitOption("Unit", "After", checkUnitName),
	}
}

// checksumsOf returns the SHA-256 sums of everything that a configuration writes, in the format of sha256sum.
func checksumsOf(config ignition.Config) ([]byte, error) {
	var sums strings.Builder
	add := func(name string, contents []byte) { fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(contents), name) }
	for _, f := range config.Storage.Files {
		contents, err := ignition.Contents(f.Contents, maxFileSize)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Path, err)
		}
		add(f.Path, contents)
	}
	for _, u := range config.Systemd.Units {
		if u.Contents != nil {
			add(path.Join(ignition.UnitDirectory, u.Name), []byte(*u.Contents))
		}
		for _, dropin := range u.Dropins {
			add(path.Join(ignition.UnitDirectory, u.Name+".d", dropin.Name), []byte(ptr.Deref(dropin.Contents, "")))
		}
	}
	return []byte(sums.String()), nil
}

// withDropin adds Poolboot's drop-in to a unit of the image.
func withDropin(u types.Unit, options []*unit.UnitOption) types.Unit {
	u.Dropins = append(u.Dropins, types.Dropin{Name: ignition.OwnDropin, Contents: serialize(options)})
	return u
}
