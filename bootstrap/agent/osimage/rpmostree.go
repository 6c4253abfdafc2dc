package osimage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/rpmostree"
)

// rpmOSTree changes everything.
type rpmOSTree struct {
	client rpmostree.Client
	root   string
}

// rpmOSTreeStatus is the part of the status that counts. The first deployment is the one that boots next.
type rpmOSTreeStatus struct {
	Deployments []struct {
		Booted bool `json:"booted"`
		// ImageReference is of a container image, and Origin of a branch.
		ImageReference string   `json:"container-image-reference"`
		ImageDigest    string   `json:"container-image-reference-digest"`
		Origin         string   `json:"origin"`
		Checksum       string   `json:"checksum"`
		BaseChecksum   string   `json:"base-checksum"`
		Packages       []string `json:"requested-packages"`
		Removals       []string `json:"requested-base-removals"`
	} `json:"deployments"`
}

// references are the beginnings of references to images in a registry without signatures: both are the same.
var references = []string{"ostree-unverified-registry:", "ostree-unverified-image:docker://"}

func (t rpmOSTree) status(ctx context.Context) (status, error) {
	deployments, booted, err := t.deployments(ctx)
	if err != nil {
		return status{}, err
	}
	return status{booted: deployments[booted], next: deployments[0], isPending: booted > 0}, nil
}

// deployments returns all deployments, and which one is booted.
func (t rpmOSTree) deployments(ctx context.Context) (deployments []deployment, booted int, err error) {
	output, err := t.client.Run(ctx, "status", "--json")
	if err != nil {
		return nil, 0, err
	}
	var parsed rpmOSTreeStatus
	if err := json.Unmarshal(output, &parsed); err != nil {
		return nil, 0, fmt.Errorf("rpm-ostree status --json: %w", err)
	}
	booted = -1
	for i, found := range parsed.Deployments {
		d := deployment{Packages: found.Packages, Removals: found.Removals}
		switch {
		case found.ImageReference != "":
			d.Image = image{Name: found.ImageReference, Transport: "ostree", Digest: found.ImageDigest}
			for _, prefix := range references {
				if name, isOf := strings.CutPrefix(found.ImageReference, prefix); isOf {
					d.Image.Name, d.Image.Transport = name, registry
				}
			}
		default:
			d.Image = image{Name: found.Origin, Digest: found.Checksum}
			if found.BaseChecksum != "" {
				d.Image.Digest = found.BaseChecksum
			}
		}
		deployments = append(deployments, d)
		if found.Booted {
			booted = i
		}
	}
	if booted < 0 {
		return nil, 0, errors.New("the host did not boot a deployment of rpm-ostree: use such an image, or replace the Machine")
	}
	return deployments, booted, nil
}

func (t rpmOSTree) refuse(target deployment) error { return refuseUnknown(target) }

func (t rpmOSTree) stage(ctx context.Context, s status, target deployment, extensionsImage string) error {
	if !s.next.Image.is(target.Image) && target.Image.Transport == registry {
		if _, err := t.client.Run(ctx, "rebase", "--download-only", referenceOf(target.Image)); err != nil {
			return err
		}
	}
	if len(target.Packages) == 0 || extensionsImage == "" {
		return nil
	}
	return t.pull(ctx, extensionsImage)
}

func (t rpmOSTree) change(ctx context.Context, s status, target deployment, extensionsImage string) (err error) {
	if err := t.removeExtensions(ctx); err != nil {
		return err
	}
	if s.next.is(target) {
		return nil
	}
	if isDone, err := t.discard(ctx, s, target); err != nil || isDone {
		return err
	}
	if len(target.Packages) > 0 && extensionsImage != "" {
		defer func() { err = errors.Join(err, t.removeExtensions(ctx)) }()
		if err := t.addExtensions(ctx, extensionsImage); err != nil {
			return fmt.Errorf("provide the packages of %s: %w", extensionsImage, err)
		}
	}
	for _, arguments := range commandsFor(s.next, target) {
		if _, err := t.client.Run(ctx, arguments...); err != nil {
			return err
		}
	}
	return nil
}

// discard returns to the running deployment, if it is the target, by discarding the one that is pending. It needs no
// network. It keeps the pending deployment if it has other kernel arguments.
func (t rpmOSTree) discard(ctx context.Context, s status, target deployment) (isDone bool, err error) {
	if !s.isPending || !s.booted.is(target) {
		return false, nil
	}
	_, booted, err := t.deployments(ctx)
	if err != nil {
		return false, err
	}
	running, err := t.kernelArguments(ctx, booted)
	if err != nil {
		return false, err
	}
	pending, err := t.kernelArguments(ctx, 0)
	if err != nil || !slices.Equal(running, pending) {
		return false, err
	}
	_, err = t.client.Run(ctx, "cleanup", "--pending")
	return err == nil, err
}

// kernelArguments returns the arguments of a deployment, without the one that names the deployment.
func (t rpmOSTree) kernelArguments(ctx context.Context, index int) ([]string, error) {
	output, err := t.client.Run(ctx, "kargs", "--deploy-index="+strconv.Itoa(index))
	return slices.DeleteFunc(strings.Fields(string(output)), func(argument string) bool { return strings.HasPrefix(argument, "ostree=") }), err
}

// commandsFor returns the arguments of the commands that lead from one deployment to another.
//
// Another kernel is made for one image. So it leaves before the image changes, and comes after that.
func commandsFor(from, to deployment) (commands [][]string) {
	add := func(command []string, installed, uninstalled []string) {
		for _, name := range uninstalled {
			command = append(command, "--uninstall="+name)
		}
		for _, name := range installed {
			command = append(command, "--install="+name)
		}
		commands = append(commands, command)
	}
	changesImage := !from.Image.is(to.Image)
	restored := without(from.Removals, to.Removals)
	if changesImage {
		restored = append(restored, intersection(from.Removals, defaultKernel)...)
	}
	restored = sorted(restored)
	if len(restored) > 0 {
		uninstalled := without(from.Packages, to.Packages)
		if changesImage {
			uninstalled = append(uninstalled, intersection(from.Packages, kernelPackages())...)
		}
		uninstalled = sorted(uninstalled)
		add(append([]string{"override", "reset"}, restored...), nil, uninstalled)
		from.Removals, from.Packages = without(from.Removals, restored), without(from.Packages, uninstalled)
	}
	removed := without(to.Removals, from.Removals)
	later := intersection(without(to.Packages, from.Packages), kernelPackages())
	if len(removed) == 0 {
		later = nil
	}
	installed, uninstalled := without(without(to.Packages, from.Packages), later), without(from.Packages, to.Packages)
	switch {
	case changesImage && to.Image.Transport == "":
		add([]string{"rebase", to.Image.Name, to.Image.Digest}, installed, uninstalled)
	case changesImage:
		add([]string{"rebase", referenceOf(to.Image)}, installed, uninstalled)
	case len(installed) > 0:
		add(append([]string{"install", "--allow-inactive"}, installed...), nil, uninstalled)
	case len(uninstalled) > 0:
		add(append([]string{"uninstall"}, uninstalled...), nil, nil)
	}
	if len(removed) > 0 {
		add(append([]string{"override", "remove"}, removed...), later, nil)
	}
	return commands
}

// referenceOf returns the reference to a container image.
func referenceOf(i image) string {
	if i.Transport != registry {
		return i.pinned()
	}
	return references[0] + i.pinned()
}

func kernelPackages() (all []string) {
	for _, packages := range kernels {
		all = append(all, packages...)
	}
	return all
}

func intersection(names, kept []string) []string { return without(names, without(names, kept)) }
