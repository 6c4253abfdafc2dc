package join

import (
	"encoding/base64"
	"io"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/utils/ptr"

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
