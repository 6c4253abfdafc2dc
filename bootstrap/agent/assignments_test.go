package agent

import (
	"cmp"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// offer offers an assignment to the host, and returns its revision.
func (w *world) offer(a assignment.Assignment) string {
	GinkgoHelper()
	revision := w.put(a)
	w.offered, w.node.Annotations[agentv1.DesiredAnnotation] = revision, revision
	return revision
}

func (w *world) put(a assignment.Assignment) string {
	GinkgoHelper()
	document, err := assignment.Encode(a)
	Expect(err).NotTo(HaveOccurred())
	revision := assignment.Revision(document)
	w.documents[revision] = document
	return revision
}

// assign returns an assignment with a configuration.
func (w *world) assign(name string, config update.Config, changes ...func(*assignment.Assignment)) assignment.Assignment {
	GinkgoHelper()
	file, err := json.Marshal(ignition.MachineConfigFile{
		Name: name, KernelType: cmp.Or(config.OS.KernelType, "default"), OSImageURL: config.OS.Image, Extensions: config.OS.Extensions, KernelArguments: config.KernelArguments, FIPS: config.FIPS,
	})
	Expect(err).NotTo(HaveOccurred())
	served := config.Ignition
	served.Ignition.Version = ignition.Version
	served.Storage.Files = append(slices.Clone(served.Storage.Files), newFile(ignition.MachineConfigPath, string(file)))
	document, err := ignition.Marshal(served)
	Expect(err).NotTo(HaveOccurred())
	w.rendered[name] = document
	sum := sha512.Sum512(document)
	a := assignment.Assignment{
		Node: "edge-7", Config: assignment.RenderedConfig{Name: name, SHA512: hex.EncodeToString(sum[:])}, Machine: json.RawMessage(`{"ignition":{"version":"3.5.0"}}`),
		Policy: update.DefaultPolicy(), MinReadySeconds: 10, ReadyDeadlineSeconds: 600,
	}
	a.Policy.Paths["/etc/none"] = rule(update.Action{Type: update.None})
	a.Policy.Paths["/etc/image.conf"] = rule(update.Action{Type: update.None})
	a.Policy.Paths["/etc/reload"] = rule(update.Action{Type: update.Reload, Unit: "web.service"})
	a.Policy.Paths["/etc/restart"] = rule(update.Action{Type: update.Restart, Unit: "kubelet.service"})
	a.Policy.Paths["/etc/drain"] = rule(update.Action{Type: update.Drain}, update.Action{Type: update.Restart, Unit: "web.service"})
	a.Policy.Units["web.service"] = rule(update.Action{Type: update.DaemonReload}, update.Action{Type: update.Restart, Unit: "web.service"})
	for _, change := range changes {
		change(&a)
	}
	return a
}

func rule(actions ...update.Action) update.Rule {
	return update.Rule{Actions: actions, Reason: "a test"}
}

// install boots a new host with an assignment, as Ignition does, and offers it.
func (w *world) install(a assignment.Assignment) string {
	GinkgoHelper()
	t, err := newTarget("", a, w.rendered[a.Config.Name])
	Expect(err).NotTo(HaveOccurred())
	host := hosttree.System{Accounts: hosttree.ParseAccounts([]byte(w.read("etc/passwd")), []byte(w.read("etc/group")))}
	host.Fetch = func(r types.Resource) ([]byte, error) { return w.contents[*r.Source], nil }
	tree, err := treeOn(t, host)
	Expect(err).NotTo(HaveOccurred())
	for _, name := range tree.Paths() {
		real, entry := filepath.Join(w.directory, name), tree[name]
		switch entry.Type {
		case hosttree.Directory:
			Expect(os.MkdirAll(real, 0o755)).To(Succeed())
		case hosttree.Link:
			Expect(os.MkdirAll(filepath.Dir(real), 0o755)).To(Succeed())
			Expect(os.Symlink(entry.Target, real)).To(Succeed())
		default:
			w.write(name, string(entry.Contents))
			Expect(os.Chmod(real, fs.FileMode(ptr.Deref(entry.Mode, 0o644)))).To(Succeed())
		}
	}
	for _, operation := range update.Desired(t.config) {
		w.apply(operation)
	}
	w.running, w.runningOS = slices.Clone(w.arguments), w.os.Image
	w.calls = nil
	return w.offer(a)
}

// installed returns the world of a host that was installed with a config.
func installed(config update.Config, changes ...func(*assignment.Assignment)) *world {
	w := newWorld()
	w.install(w.assign("rendered-a", config, changes...))
	Expect(w.run()).To(Succeed())
	w.states, w.calls = nil, nil
	return w
}

// Entries of configurations.

func newFile(name, contents string) types.File {
	return types.File{
		Node:          types.Node{Path: name, Overwrite: ptr.To(true)},
		FileEmbedded1: types.FileEmbedded1{Mode: ptr.To(0o644), Contents: types.Resource{Source: ptr.To("data:," + strings.ReplaceAll(escaped(contents), " ", "%20"))}},
	}
}

func escaped(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}

func withFiles(pairs ...string) update.Config {
	config := update.Config{}
	for i := 0; i < len(pairs); i += 2 {
		config.Ignition.Storage.Files = append(config.Ignition.Storage.Files, newFile(pairs[i], pairs[i+1]))
	}
	return config
}
