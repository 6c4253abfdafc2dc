package osimage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

func TestOSImage(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "The operating system of a host")
}

// errPower is the error of a program during which the power is lost.
var errPower = errors.New("no power")

// host is a model of a host with deployments, and of its programs, written from their documentation.
type host struct {
	root         string
	booted, next *deployed
	// calls are the programs that changed something, with their arguments.
	calls []string
	// failAt loses the power before (odd) or after (even) a call that changes something, counted from 1.
	failAt int
	// repositories are whether the packages of each call came from the extensions image.
	repositories []bool
	// provided are packages of the image.
	provided []string
}

// deployed is a deployment with its kernel arguments.
type deployed struct {
	deployment
	arguments string
}

const (
	installed       = "quay.io/example/os:stable"
	installedDigest = "sha256:1111"
	fedora          = "fedora:fedora/x86_64/coreos/stable"
)

// newHost returns a host that was installed with a container image.
func newHost() *host {
	GinkgoHelper()
	h := &host{root: newDirectory()}
	h.booted = &deployed{deployment: deployment{Image: image{Name: installed, Transport: registry, Digest: installedDigest}}, arguments: "ro"}
	h.next = h.booted
	return h
}

// newDirectory returns a directory, in memory if possible: the specs sync a lot.
func newDirectory() string {
	GinkgoHelper()
	parent := "/dev/shm"
	if _, err := os.Stat(parent); err != nil {
		parent = ""
	}
	directory, err := os.MkdirTemp(parent, "osimage-")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, directory)
	return directory
}

func (h *host) executor(program string) *Executor {
	return &Executor{Runner: h, Programs: []string{program}, Root: h.root}
}

// reboot boots the next deployment.
func (h *host) reboot() {
	GinkgoHelper()
	h.booted = h.next
	Expect(os.RemoveAll(filepath.Join(h.root, "run"))).To(Succeed())
}

// losePower boots the old deployment: the staged one is only in memory.
func (h *host) losePower() {
	GinkgoHelper()
	h.next = h.booted
	h.reboot()
}

func (h *host) exists(name string) bool {
	_, err := os.Stat(filepath.Join(h.root, name))
	return err == nil
}

// Run runs a program.
func (h *host) Run(_ context.Context, name string, arguments ...string) ([]byte, error) {
	switch text := name + " " + strings.Join(arguments, " "); {
	case text == "rpm-ostree status --json":
		return h.rpmOSTreeStatus()
	case text == "bootc status --format=json":
		return h.bootcStatus()
	case text == "rpm-ostree kargs --deploy-index=0":
		return []byte(h.next.arguments + " ostree=/ostree/boot.1/a\n"), nil
	case text == "rpm-ostree kargs --deploy-index=1":
		return []byte(h.booted.arguments + " ostree=/ostree/boot.0/b\n"), nil
	case strings.HasPrefix(text, "podman rm"):
		return nil, nil
	case strings.HasPrefix(text, "rpm --query --whatprovides "):
		if !slices.Contains(h.provided, arguments[2]) {
			return nil, errors.New("exit status 1: no package provides " + arguments[2])
		}
		return nil, nil
	default:
		h.calls = append(h.calls, text)
		if 2*len(h.calls)-1 == h.failAt {
			return nil, errPower
		}
		if err := h.change(name, arguments); err != nil {
			return nil, err
		}
		if 2*len(h.calls) == h.failAt {
			return nil, errPower
		}
		return nil, nil
	}
}

func (h *host) change(name string, arguments []string) error {
	next := *h.next
	switch {
	case slices.Contains(arguments, "--download-only"):
		return nil
	case name == "podman":
		if arguments[0] == "cp" {
			return os.MkdirAll(filepath.Join(h.root, arguments[2]), 0o755)
		}
		return nil
	case name == "bootc" && arguments[0] == "switch":
		transport, _ := strings.CutPrefix(arguments[1], "--transport=")
		next.Image = named(arguments[2], transport)
	case name == "rpm-ostree" && arguments[0] == "cleanup":
		h.next = h.booted
		return nil
	case name == "rpm-ostree":
		if err := h.rpmOSTree(&next.deployment, arguments); err != nil {
			return err
		}
		h.repositories = append(h.repositories, h.exists(repositoryPath) && h.exists(extensionsDirectory))
	default:
		return fmt.Errorf("unexpected %s %v", name, arguments)
	}
	h.next = &next
	return nil
}

// named returns an image with the digest that the registry has for it.
func named(name, transport string) image {
	i := image{Name: name, Transport: transport}
	if _, digest, isPinned := strings.Cut(name, "@"); isPinned {
		i.Digest = digest
	} else if name == installed {
		i.Digest = installedDigest
	} else {
		i.Digest = "sha256:of-" + name
	}
	return i
}

// rpmOSTree refuses what the program refuses: an image that is the same, a request that is there, or one that is not.
func (h *host) rpmOSTree(d *deployment, arguments []string) error {
	var positional, install, uninstall []string
	for _, argument := range arguments {
		if name, found := strings.CutPrefix(argument, "--install="); found {
			install = append(install, name)
		} else if name, found := strings.CutPrefix(argument, "--uninstall="); found {
			uninstall = append(uninstall, name)
		} else if argument != "--allow-inactive" {
			positional = append(positional, argument)
		}
	}
	switch positional[0] {
	case "rebase":
		next := image{}
		if name, isContainer := strings.CutPrefix(positional[1], "ostree-unverified-registry:"); isContainer {
			next = named(name, registry)
		} else {
			next = image{Name: positional[1], Digest: positional[2]}
		}
		if next.Name == d.Image.Name {
			return errors.New("error: Old and new refs are equal: " + positional[1])
		}
		if len(intersection(d.Removals, defaultKernel)) > 0 {
			return errors.New("the kernel of another image")
		}
		d.Image = next
	case "install":
		install = append(install, positional[1:]...)
	case "uninstall":
		uninstall = append(uninstall, positional[1:]...)
	case "override":
		for _, name := range positional[2:] {
			if slices.Contains(d.Removals, name) != (positional[1] == "reset") {
				return fmt.Errorf("error: override %s %s", positional[1], name)
			}
		}
		if positional[1] == "reset" {
			d.Removals = without(d.Removals, positional[2:])
		} else {
			d.Removals = slices.Concat(d.Removals, positional[2:])
		}
	}
	for _, name := range uninstall {
		if !slices.Contains(d.Packages, name) {
			return fmt.Errorf("error: Package/capability '%s' is not currently requested", name)
		}
	}
	for _, name := range install {
		if slices.Contains(d.Packages, name) {
			return fmt.Errorf("error: Package/capability '%s' is already requested", name)
		}
	}
	d.Packages = slices.Concat(without(d.Packages, uninstall), install)
	return nil
}

func (h *host) rpmOSTreeStatus() ([]byte, error) {
	list := []map[string]any{}
	for _, d := range []*deployed{h.next, h.booted} {
		entry := map[string]any{"booted": d == h.booted, "requested-packages": d.Packages, "requested-base-removals": d.Removals}
		if d.Image.Transport == registry {
			entry["container-image-reference"] = "ostree-unverified-registry:" + d.Image.Name
			entry["container-image-reference-digest"] = d.Image.Digest
			entry["checksum"] = "of a commit"
		} else {
			entry["origin"], entry["checksum"] = d.Image.Name, d.Image.Digest
		}
		list = append(list, entry)
		if h.next == h.booted {
			break
		}
	}
	return json.Marshal(map[string]any{"deployments": list})
}

func (h *host) bootcStatus() ([]byte, error) {
	entry := func(d *deployed) any {
		return map[string]any{"incompatible": len(d.Packages) > 0, "image": map[string]any{
			"image": map[string]any{"image": d.Image.Name, "transport": d.Image.Transport}, "imageDigest": d.Image.Digest}}
	}
	found := map[string]any{"booted": entry(h.booted), "staged": nil, "rollback": nil}
	if h.next != h.booted {
		found["staged"] = entry(h.next)
	}
	return json.Marshal(map[string]any{"status": found})
}

func operations(before, after update.OperatingSystem) []update.Operation {
	return []update.Operation{{Kind: update.ChangeOS, Before: update.State{OS: &before}, After: update.State{OS: &after}}}
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
