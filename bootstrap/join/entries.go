package join

import (
	"encoding/base64"
	"io"
	"path"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/utils/ptr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/kubeconfig"
)

// joinKubeconfig returns a kubeconfig that contains the server, its CA and the credential, and refers to no files.
func joinKubeconfig(cl Cluster, cred Credential) ([]byte, error) {
	config := kubeconfig.Config{Server: cl.Server, CA: cl.CA, Token: cred.Token()}
	return config.Kubeconfig(cl.Name, "poolboot")
}

// newFile returns a file that overwrites the file of the image at the same path.
func newFile(path string, mode int, contents []byte) types.File {
	return types.File{
		Node: types.Node{Path: path, Overwrite: ptr.To(true)},
		FileEmbedded1: types.FileEmbedded1{
			Mode:     ptr.To(mode),
			Contents: types.Resource{Source: ptr.To("data:;base64," + base64.StdEncoding.EncodeToString(contents))},
		},
	}
}

func newDirectory(path string) types.Directory {
	return types.Directory{Node: types.Node{Path: path}, DirectoryEmbedded1: types.DirectoryEmbedded1{Mode: ptr.To(0o755)}}
}

// newUnit returns a unit. Without options, it refers to the unit of the image.
func newUnit(name string, options []*unit.UnitOption) types.Unit {
	if len(options) == 0 {
		return types.Unit{Name: name}
	}
	return types.Unit{Name: name, Contents: serialize(options)}
}

// serialize returns the text of a unit or a drop-in.
func serialize(options []*unit.UnitOption) *string {
	text := &strings.Builder{}
	_, _ = io.Copy(text, unit.Serialize(options)) // a copy in memory does not fail
	return ptr.To(text.String())
}

func newEnabledUnit(name string, options []*unit.UnitOption) types.Unit {
	u := newUnit(name, options)
	u.Enabled = ptr.To(true)
	return u
}

// newOnlineUnit returns the options of a unit that needs the network. If the host has their units, it also starts after
// containerd or CRI-O, and after the first boot is marked as complete. Otherwise, Ignition would run again after a
// power loss, and would fail on a host that has joined, because its token is revoked.
func newOnlineUnit(description string) []*unit.UnitOption {
	return []*unit.UnitOption{
		unit.NewUnitOption("Unit", "Description", description),
		unit.NewUnitOption("Unit", "Wants", "network-online.target"),
		unit.NewUnitOption("Unit", "After", "network-online.target containerd.service crio.service "+
			"ignition-firstboot-complete.service coreos-ignition-firstboot-complete.service"),
	}
}

func wantedByMultiUser() *unit.UnitOption {
	return unit.NewUnitOption("Install", "WantedBy", "multi-user.target")
}

func dependenciesTarget() types.Unit {
	return newUnit(ignition.DependenciesTarget, []*unit.UnitOption{
		unit.NewUnitOption("Unit", "Description", "Units that start before the kubelet"),
	})
}

// wantsDependencies returns the settings with which the kubelet starts after the target. A failed or masked target does
// not keep a host from joining.
func wantsDependencies() []*unit.UnitOption {
	return []*unit.UnitOption{
		unit.NewUnitOption("Unit", "Wants", ignition.DependenciesTarget),
		unit.NewUnitOption("Unit", "After", ignition.DependenciesTarget),
	}
}

// kubeletDirectory is where the kubelet keeps its state.
const kubeletDirectory = "/var/lib/kubelet"

// checkpointsUnit returns the unit that removes the kubelet's checkpoints of which CPUs and memory it has pinned to
// which Pods. The kubelet does not start with checkpoints that do not fit its configuration, its version or the
// hardware. They are about running containers, and the unit runs when there are none: before the kubelet starts for the
// first time in a boot, and after a drain, for an update that stops the unit. It also removes the files that kubeadm
// and the kubelet write only if there are none, and do not sync: after a power loss during the join they can be empty.
func checkpointsUnit() []*unit.UnitOption {
	const ca, cert, key = ignition.ClusterCAPath, ignition.KubeletPKIDirectory + "/kubelet.crt", ignition.KubeletPKIDirectory + "/kubelet.key"
	return []*unit.UnitOption{
		unit.NewUnitOption("Unit", "Description", "Remove the checkpoints of CPUs and memory, and the empty files, that an earlier kubelet left"),
		unit.NewUnitOption("Unit", "RequiresMountsFor", kubeletDirectory),
		unit.NewUnitOption("Service", "Type", "oneshot"),
		unit.NewUnitOption("Service", "RemainAfterExit", "yes"),
		unit.NewUnitOption("Service", "ExecStart", "/usr/bin/rm -f "+kubeletDirectory+"/cpu_manager_state "+kubeletDirectory+"/memory_manager_state"),
		unit.NewUnitOption("Service", "ExecStart", "/bin/sh -c 'test -s "+ca+" || rm -f "+ca+"; test -s "+cert+" -a -s "+key+" || rm -f "+cert+" "+key+"'"),
	}
}

// followsCheckpoints returns the settings with which the kubelet starts after that unit, and stops before it. The
// kubelet also starts if the unit fails. A drop-in cannot remove the settings.
func followsCheckpoints() []*unit.UnitOption {
	return []*unit.UnitOption{
		unit.NewUnitOption("Unit", "Wants", ignition.CheckpointsUnit),
		unit.NewUnitOption("Unit", "After", ignition.CheckpointsUnit),
		unit.NewUnitOption("Unit", "PartOf", ignition.CheckpointsUnit),
	}
}

// kubeletCertificate is the client certificate of the kubelet. When it exists, the host has joined. The kubeconfig of
// the kubelet does not show this: the kubelet writes it before it requests the certificate.
const kubeletCertificate = ignition.KubeletPKIDirectory + "/kubelet-client-current.pem"

// sentinelUnits returns the units that create the sentinel file of Cluster API when the host has joined. Of what
// kubeadm and the kubelet have written, only the certificate is synced. A host that loses power must not come up with
// the certificate and without the rest, because its token is revoked soon.
func sentinelUnits() []types.Unit {
	return []types.Unit{
		// starts the service when the kubelet has its client certificate, at every boot
		newEnabledUnit("poolboot-joined.path", []*unit.UnitOption{
			unit.NewUnitOption("Unit", "Description", "Wait for the kubelet's client certificate"),
			unit.NewUnitOption("Path", "PathExists", kubeletCertificate),
			wantedByMultiUser(),
		}),
		// stays active: otherwise, the path unit would start it repeatedly
		newUnit("poolboot-joined.service", []*unit.UnitOption{
			unit.NewUnitOption("Unit", "Description", "Create the sentinel file of Cluster API"),
			unit.NewUnitOption("Service", "Type", "oneshot"),
			unit.NewUnitOption("Service", "RemainAfterExit", "yes"),
			unit.NewUnitOption("Service", "ExecStart", "-/usr/bin/sync -f "+kubeletDirectory+" "+path.Dir(ignition.KubeconfigPath)),
			unit.NewUnitOption("Service", "ExecStart", "/usr/bin/mkdir -p "+path.Dir(ignition.SentinelPath)),
			unit.NewUnitOption("Service", "ExecStart", "/usr/bin/touch "+ignition.SentinelPath),
		}),
	}
}
