package join

import (
	"crypto/sha256"
	_ "embed" // check.sh
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/utils/ptr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// checkUnitName is the unit that the kubelet and kubeadm join wait for, and that fails on a host that was changed.
const checkUnitName = ignition.OwnUnitPrefix + "check.service"

const (
	checkScriptPath = ignition.OwnDirectory + "/check.sh"
	checkSumsPath   = ignition.OwnDirectory + "/check.sha256"
)

// unitDirectory is where Ignition writes units and drop-ins.
const unitDirectory = "/etc/systemd/system"

// maxChecked is more than a file of an overlay has, in bytes.
const maxChecked = 1 << 20

//go:embed check.sh
var checkScript []byte

// withCheck adds to a machine's own configuration the check that everything in it is on the host as it says, byte for
// byte, and that the kubelet's unit takes its flags from variable, which the environment file flags sets. Guard refuses
// what it recognizes in MachineConfigs; the check is for the rest.
func withCheck(config ignition.Config, variable, flags string) (ignition.Config, error) {
	command := strings.Join([]string{"/bin/sh", checkScriptPath, checkSumsPath, variable, flags, ignition.KubeletConfigDirectory}, " ")
	config.Storage.Files = append(config.Storage.Files, file(checkScriptPath, 0o644, checkScript))
	config.Systemd.Units = append(config.Systemd.Units, systemdUnit(checkUnitName, checkUnit(command)))
	sums, err := sumsOf(config)
	if err != nil {
		return ignition.Config{}, err
	}
	config.Storage.Files = append(config.Storage.Files, file(checkSumsPath, 0o644, sums))
	return config, nil
}

// checkUnit runs the check at every boot until the host has joined. After that a change can't bring the Node into
// another pool: its record decides, and a Node that is in use must not be lost because somebody renewed a certificate
// by hand.
func checkUnit(command string) []*unit.UnitOption {
	return append(onlineUnit("Check that this host joins in the pool that it was made for"),
		unit.NewUnitOption("Unit", "ConditionPathExists", "!"+kubeletCertificate),
		unit.NewUnitOption("Service", "Type", "oneshot"),
		unit.NewUnitOption("Service", "RemainAfterExit", "yes"),
		unit.NewUnitOption("Service", "StandardOutput", "journal+console"),
		unit.NewUnitOption("Service", "StandardError", "journal+console"),
		unit.NewUnitOption("Service", "ExecStart", command))
}

// checkedFirst are the settings by which a unit starts only after the check, and only if that went well. No drop-in can
// take back Requires or After.
func checkedFirst() []*unit.UnitOption {
	return []*unit.UnitOption{
		unit.NewUnitOption("Unit", "Requires", checkUnitName),
		unit.NewUnitOption("Unit", "After", checkUnitName),
	}
}

// sumsOf lists, as sha256sum does, all that a configuration writes.
func sumsOf(config ignition.Config) ([]byte, error) {
	var sums strings.Builder
	add := func(name string, contents []byte) { fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(contents), name) }
	for _, f := range config.Storage.Files {
		contents, err := ignition.Contents(f.Contents, maxChecked)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Path, err)
		}
		add(f.Path, contents)
	}
	for _, u := range config.Systemd.Units {
		if u.Contents != nil {
			add(path.Join(unitDirectory, u.Name), []byte(*u.Contents))
		}
		for _, dropin := range u.Dropins {
			add(path.Join(unitDirectory, u.Name+".d", dropin.Name), []byte(ptr.Deref(dropin.Contents, "")))
		}
	}
	return []byte(sums.String()), nil
}

// withDropin adds Poolboot's drop-in to a unit that the image has.
func withDropin(u types.Unit, options []*unit.UnitOption) types.Unit {
	text := &strings.Builder{}
	_, _ = io.Copy(text, unit.Serialize(options)) // neither end of a copy in memory fails
	u.Dropins = append(u.Dropins, types.Dropin{Name: ignition.OwnDropin, Contents: ptr.To(text.String())})
	return u
}
