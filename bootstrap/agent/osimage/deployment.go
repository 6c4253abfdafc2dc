package osimage

import (
	"errors"
	"slices"
	"strings"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// image is the base of a deployment.
type image struct {
	// Name is that of a container image, or of a branch of OSTree.
	Name string `json:"name"`
	// Transport is where the container image comes from, in the notation of the program. It is empty for a branch.
	Transport string `json:"transport,omitempty"`
	// Digest is that of the container image, or the checksum of the commit of a branch. It can be unknown.
	Digest string `json:"digest,omitempty"`
}

// is reports whether an image is another one. Names with the same digest are the same. The digest in a name can be that
// of images for several architectures, so another digest does not count if the name is the same.
func (i image) is(other image) bool {
	if i.Name == other.Name && i.Transport == other.Transport {
		return true
	}
	return i.Digest != "" && i.Digest == other.Digest && (i.Transport == "") == (other.Transport == "")
}

// pinned returns the name of a container image with its digest instead of a tag.
func (i image) pinned() string {
	if i.Digest == "" || strings.Contains(i.Name, "@") {
		return i.Name
	}
	name := i.Name
	if colon := strings.LastIndex(name, ":"); colon > strings.LastIndex(name, "/") {
		name = name[:colon]
	}
	return name + "@" + i.Digest
}

// newImage returns a container image in a registry. The digest in the name is that of the image.
func newImage(name string) image {
	_, digest, _ := strings.Cut(name, "@")
	return image{Name: name, Transport: registry, Digest: digest}
}

// registry is the transport of images of configurations.
const registry = "registry"

// deployment is what a host boots.
type deployment struct {
	Image image
	// Packages are installed in addition to the image, and Removals removed from it. Both are requests: a package can
	// also be in the image.
	Packages, Removals []string
}

func (d deployment) is(other deployment) bool {
	return d.Image.is(other.Image) && isSame(d.Packages, other.Packages) && isSame(d.Removals, other.Removals)
}

// String returns the deployment for messages.
func (d deployment) String() string {
	text := d.Image.Name
	if len(d.Packages) > 0 {
		text += " with " + strings.Join(d.Packages, ", ")
	}
	if len(d.Removals) > 0 {
		text += " without " + strings.Join(d.Removals, ", ")
	}
	return text
}

// status are the deployments of a host.
type status struct {
	// booted is running, and next is what the host boots next. They are the same if nothing is pending.
	booted, next deployment
	isPending    bool
}

// Kernels of OpenShift. kernel-rt itself is not among them, because it requires much else.
var (
	defaultKernel = []string{"kernel", "kernel-core", "kernel-modules", "kernel-modules-core", "kernel-modules-extra"}
	kernels       = map[string][]string{
		update.RealtimeKernel: {"kernel-rt-core", "kernel-rt-modules", "kernel-rt-modules-extra"},
		update.PagesKernel:    {"kernel-64k-core", "kernel-64k-modules", "kernel-64k-modules-core", "kernel-64k-modules-extra"},
	}
)

// extensions are those of OpenShift that are not the name of their only package.
var extensions = map[string][]string{
	"wasm":                 {"crun-wasm"},
	"ipsec":                {"NetworkManager-libreswan", "libreswan"},
	"kerberos":             {"krb5-workstation", "libkadm5"},
	"kernel-devel":         {"kernel-devel", "kernel-headers"},
	"sandboxed-containers": {"kata-containers"},
}

// targetOf returns the deployment for a configuration.
func targetOf(want update.OperatingSystem, known record) deployment {
	target := deployment{Image: known.Image, Packages: slices.Clone(known.Packages), Removals: slices.Clone(known.Removals)}
	if want.Image != "" {
		target.Image = newImage(want.Image)
	}
	kernel := kernels[want.KernelType]
	if len(kernel) > 0 {
		target.Packages = append(target.Packages, kernel...)
		target.Removals = append(target.Removals, defaultKernel...)
	}
	for _, name := range want.Extensions {
		packages, isGroup := extensions[name]
		if !isGroup {
			packages = []string{name}
		}
		target.Packages = append(target.Packages, packages...)
	}
	target.Packages, target.Removals = sorted(target.Packages), sorted(target.Removals)
	return target
}

// refuseUnknown refuses a deployment without an image.
func refuseUnknown(target deployment) error {
	if target.Image.Name == "" {
		return errors.New("the image that the host was installed with is not known: set osImageURL, or replace the Machine")
	}
	return nil
}

// sorted returns names in order, each once.
func sorted(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names)
}

func isSame(a, b []string) bool { return slices.Equal(sorted(a), sorted(b)) }

func without(names, removed []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(removed, name) })
}
