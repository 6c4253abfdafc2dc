package join

import (
	"encoding/base64"
	"io"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
)

// joinKubeconfig returns a kubeconfig that carries everything in itself: the server, its CA and the credential.
func joinKubeconfig(cl Cluster, cred Credential) ([]byte, error) {
	const user = "poolboot"
	config := clientcmdapi.NewConfig()
	config.Clusters[cl.Name] = &clientcmdapi.Cluster{Server: cl.Server, CertificateAuthorityData: cl.CA}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: cred.Token()}
	config.Contexts[user] = &clientcmdapi.Context{Cluster: cl.Name, AuthInfo: user}
	config.CurrentContext = user
	return clientcmd.Write(*config)
}

// file returns a file that takes the place of whatever the image has at its path.
func file(path string, mode int, contents []byte) types.File {
	return types.File{
		Node: types.Node{Path: path, Overwrite: ptr.To(true)},
		FileEmbedded1: types.FileEmbedded1{
			Mode:     ptr.To(mode),
			Contents: types.Resource{Source: ptr.To("data:;base64," + base64.StdEncoding.EncodeToString(contents))},
		},
	}
}

func directory(path string) types.Directory {
	return types.Directory{Node: types.Node{Path: path}, DirectoryEmbedded1: types.DirectoryEmbedded1{Mode: ptr.To(0o755)}}
}

// systemdUnit returns a unit; without options it is about the unit that the image has.
func systemdUnit(name string, options []*unit.UnitOption) types.Unit {
	if len(options) == 0 {
		return types.Unit{Name: name}
	}
	text := &strings.Builder{}
	_, _ = io.Copy(text, unit.Serialize(options)) // neither end of a copy in memory fails
	return types.Unit{Name: name, Contents: ptr.To(text.String())}
}

func enabledUnit(name string, options []*unit.UnitOption) types.Unit {
	u := systemdUnit(name, options)
	u.Enabled = ptr.To(true)
	return u
}

// onlineUnit starts a unit that needs the network and, where there is one of these names, the container runtime.
func onlineUnit(description string) []*unit.UnitOption {
	return []*unit.UnitOption{
		unit.NewUnitOption("Unit", "Description", description),
		unit.NewUnitOption("Unit", "Wants", "network-online.target"),
		unit.NewUnitOption("Unit", "After", "network-online.target containerd.service crio.service"),
	}
}

func atBoot() *unit.UnitOption { return unit.NewUnitOption("Install", "WantedBy", "multi-user.target") }
