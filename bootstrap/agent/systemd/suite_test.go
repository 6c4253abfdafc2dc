package systemd_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/command"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/systemd"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// TestMain lets the program of this suite, copied to a host, call the manager there.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == callArgument {
		call(os.Args[2:])
		return
	}
	os.Exit(m.Run())
}

func TestSystemd(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Units of a host")
}

const service = "[Service]\nExecStart=/bin/true\n"

// install is the section of a unit that can be enabled.
const install = "[Install]\nWantedBy=multi-user.target\n"

// write writes a file below a root.
func write(root, name, contents string) {
	GinkgoHelper()
	file := filepath.Join(root, name)
	Expect(os.MkdirAll(filepath.Dir(file), 0o755)).To(Succeed())
	Expect(os.WriteFile(file, []byte(contents), 0o644)).To(Succeed())
}

// writeUnit writes a unit, as hostfiles does.
func writeUnit(root, name, contents string) {
	GinkgoHelper()
	write(root, "etc/systemd/system/"+name, contents)
}

// run runs a program below a root.
func run(root string, arguments ...string) string {
	GinkgoHelper()
	cmd := exec.Command("chroot", append([]string{root}, arguments...)...)
	output, err := cmd.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(output))
	return string(output)
}

// files returns what is below the directory of units, by path: the contents of files and the targets of links. Those
// that make a target want a unit are effective by their names, whatever they lead to.
func files(root string) map[string]string {
	GinkgoHelper()
	found := map[string]string{}
	top := filepath.Join(root, "etc/systemd/system")
	Expect(filepath.WalkDir(top, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(top, name)
		if err != nil {
			return err
		}
		switch {
		case entry.Type()&fs.ModeSymlink != 0:
			found[relative], err = os.Readlink(name)
			found[relative] = "-> " + strings.TrimPrefix(found[relative], "/usr")
			if strings.HasSuffix(filepath.Dir(relative), ".wants") {
				found[relative] = "-> ..."
			}
		case entry.Type().IsRegular():
			var contents []byte
			contents, err = os.ReadFile(name)
			found[relative] = string(contents)
		}
		return err
	})).To(Succeed())
	return found
}

// enablement returns what enables units below a root.
func enablement(root string, links ...string) systemd.Enablement {
	return systemd.Enablement{Runner: command.Runner{Root: root}, Links: func() map[string]string {
		known := map[string]string{}
		for i := 0; i+1 < len(links); i += 2 {
			known[links[i]] = links[i+1]
		}
		return known
	}}
}

// change is an operation.
func change(unit string, before, after update.Enablement) update.Operation {
	return update.Operation{Kind: update.ChangeEnablement, Name: unit, Before: update.State{Enablement: before}, After: update.State{Enablement: after}}
}

// object is a JSON object.
type object map[string]any

func encode(o object) []byte {
	GinkgoHelper()
	document, err := json.Marshal(o)
	Expect(err).NotTo(HaveOccurred())
	return document
}

// applyAll carries out operations in their order, also after one that failed.
func applyAll(executor interface {
	Apply(ctx context.Context, operation update.Operation) error
}, ctx context.Context, operations []update.Operation) (err error) {
	for _, operation := range operations {
		err = errors.Join(err, executor.Apply(ctx, operation))
	}
	return err
}
