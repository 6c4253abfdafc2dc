package convert

import (
	"bytes"
	"maps"
	"slices"

	"github.com/pelletier/go-toml/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/yaml"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// Container runtimes of hosts, for which files are written.
const (
	runtimeCRIO       = "crio"
	runtimeContainerd = "containerd"
)

var containerRuntimes = []string{runtimeCRIO, runtimeContainerd}

// table is a table of TOML.
type table = map[string]any

// hostFiles are files in TOML by their paths on a host.
type hostFiles map[string][]byte

// add adds a file with one table.
func (f hostFiles) add(path string, content table) { f[path] = encodeTOML(content) }

// encodeTOML returns a table in TOML. Its keys are in alphabetical order.
func encodeTOML(content table) []byte {
	var text bytes.Buffer
	utilruntime.Must(toml.NewEncoder(&text).Encode(content)) // strings, numbers, booleans, lists and tables can be encoded
	return text.Bytes()
}

// fileMode makes a file readable for all users of the host: it holds no secret.
const fileMode = 0o644

// newFilesConfig returns a MachineConfig with files for the pool of a role. It is Butane, in which the files can be
// read and changed.
func newFilesConfig(name, role string, files hostFiles) poolv1.MachineConfig {
	list := []table{}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		list = append(list, table{"path": path, "mode": fileMode, "overwrite": true, "contents": table{"inline": string(files[path])}})
	}
	text, err := yaml.Marshal(table{"variant": "fcos", "version": "1.5.0", "storage": table{"files": list}})
	utilruntime.Must(err)
	config := poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{input.RoleLabel: role}}}
	config.Spec.Butane = string(text)
	return config
}
