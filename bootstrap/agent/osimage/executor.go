// Package osimage changes the operating system of a host: its image, its kernel, and the extensions that are installed
// in addition to the image. The change is a new deployment, which the host boots next; the running one stays as it is.
//
// The directory /etc of the new deployment is that of the running one when the host shuts down. So what else an update
// changes in /etc is in both, and a change is undone with another deployment, and not with the old one: its /etc is
// from another time.
//
// # Staging
//
// rpm-ostree downloads an image with rebase --download-only, which makes no deployment, and podman pulls the extensions
// image. Packages are resolved against the new image, so they come when it is deployed, and bootc downloads an image
// only together with a deployment: both need the servers after the drain.
//
// # Programs
//
// If the host has rpm-ostree, it changes everything. Otherwise bootc changes the image, and nothing else. Automatic
// updates of the operating system, such as those of Zincati, are in the way: turn them off.
//
//   - A change of the image is a rebase to ostree-unverified-registry:<image>, as in OpenShift. A name with a digest is
//     what protects the image. The credentials of a registry are where rpm-ostree and bootc look for them, such as
//     /etc/ostree/auth.json.
//   - Extensions have the names and packages of OpenShift. Any other name is that of a package. Kernels, too, are those
//     of OpenShift, and packages of Red Hat Enterprise Linux CoreOS.
//   - Packages come from the extensions image, which podman copies to the host, or from the repositories of the host if
//     there is no such image.
//   - A change can need several commands, each with a deployment of its own. A host that loses power in between boots
//     the old one. A host that is shut down in between boots one that is not complete, and the change must be repeated.
//
// What the host had before Poolboot changed anything is recorded before the first change: the image that it was
// installed with, so that the change can be undone, and packages and removals, which stay.
//
// rpm-ostree, bootc and podman with such images are not available in Debian. The tests use models of them, written from
// their documentation, and output that was published. No test runs the programs.
package osimage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/durable"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/rpmostree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// RecordPath is where is recorded what the host had before Poolboot changed its operating system.
const RecordPath = "/var/lib/poolboot/operating-system.json"

// Executor changes the operating system of a host. It is not safe for concurrent use.
type Executor struct {
	// Runner runs the programs of the host. It needs the time to download an image.
	Runner rpmostree.Runner
	// Programs are those that the host has, of update.Programs.
	Programs []string
	// Root is the root directory of the host, / if it is empty.
	Root string
}

// Apply executes an operation of the kind update.ChangeOS. It can be repeated, also after a crash, and undone. The host
// needs a reboot afterwards.
func (e *Executor) Apply(ctx context.Context, operation update.Operation) error {
	if err := e.change(ctx, *operation.Before.OS, *operation.After.OS); err != nil {
		return fmt.Errorf("change the operating system: %w", err)
	}
	return nil
}

// Refusal returns why an operation of the kind update.ChangeOS is not possible with the program of this host, "" if it
// is or nobody knows. It changes nothing.
func (e *Executor) Refusal(ctx context.Context, operation update.Operation) string {
	chosen, err := e.tool()
	if err != nil {
		return err.Error()
	}
	s, err := chosen.status(ctx)
	if err != nil {
		return ""
	}
	known, err := e.record(s, *operation.Before.OS)
	if err != nil {
		return ""
	}
	if err := chosen.refuse(targetOf(*operation.After.OS, known)); err != nil {
		return err.Error()
	}
	return ""
}

// StagingDirectory returns where images are stored before they are used.
func (e *Executor) StagingDirectory() string {
	if _, err := os.Stat(filepath.Join("/", e.Root, "/ostree/repo")); err == nil {
		return "/ostree/repo"
	}
	return "/var"
}

// Stage downloads what an operation of the kind update.ChangeOS needs, as far as the program of this host can do that
// without another deployment: a host that reboots boots what it runs. The rest is downloaded when the operation is
// executed.
func (e *Executor) Stage(ctx context.Context, operation update.Operation) error {
	chosen, err := e.tool()
	if err != nil {
		return err
	}
	s, err := chosen.status(ctx)
	if err != nil {
		return err
	}
	known, err := e.record(s, *operation.Before.OS)
	if err != nil {
		return err
	}
	return chosen.stage(ctx, s, targetOf(*operation.After.OS, known), operation.After.OS.ExtensionsImage)
}

// Difference returns an entry of a configuration that the running operating system does not have, and how it differs.
// Both are "" if it has all of them. The image of a configuration without one is any. Call it after the reboot: a
// deployment that can't be completed when the host shuts down is discarded.
func (e *Executor) Difference(ctx context.Context, want update.OperatingSystem) (entry update.Kind, how string, err error) {
	if obstacles := want.Obstacles(); len(obstacles) > 0 {
		return obstacles[0].Kind, obstacles[0].String(), nil
	}
	chosen, err := e.tool()
	if err != nil {
		return "", "", err
	}
	s, err := chosen.status(ctx)
	if err != nil {
		return "", "", err
	}
	target := targetOf(want, record{})
	if want.Image != "" && !s.booted.Image.is(target.Image) {
		return update.KindOSImage, fmt.Sprintf("the host runs the image %s instead of %s", s.booted.Image.Name, want.Image), nil
	}
	missing := slices.DeleteFunc(without(target.Packages, s.booted.Packages), func(name string) bool {
		_, err := e.Runner.Run(ctx, "rpm", "--query", "--whatprovides", name)
		return err == nil // it is a package of the image
	})
	if len(missing) == 0 {
		return "", "", nil
	}
	entry = update.KindExtensions
	if len(intersection(missing, kernels[want.KernelType])) > 0 {
		entry = update.KindKernelType
	}
	return entry, fmt.Sprintf("the packages %q are not installed", missing), nil
}

func (e *Executor) change(ctx context.Context, before, after update.OperatingSystem) error {
	if obstacles := after.Obstacles(); len(obstacles) > 0 {
		return errors.New(obstacles[0].String())
	}
	chosen, err := e.tool()
	if err != nil {
		return err
	}
	s, err := chosen.status(ctx)
	if err != nil {
		return err
	}
	known, err := e.record(s, before)
	if err != nil {
		return err
	}
	if err := durable.WriteRecord(e.Root, RecordPath, known); err != nil {
		return err
	}
	target := targetOf(after, known)
	if err := chosen.refuse(target); err != nil {
		return err
	}
	if err := chosen.change(ctx, s, target, after.ExtensionsImage); err != nil {
		return err
	}
	if s, err = chosen.status(ctx); err != nil {
		return err
	}
	if !s.next.is(target) {
		return fmt.Errorf("the host would boot %s instead of %s: see the journal of the host for the reason, or replace the Machine", s.next, target)
	}
	return nil
}

// record is what the host had before Poolboot changed its operating system.
type record struct {
	// Image is the image that the host was installed with. It is empty if nobody knows.
	Image image `json:"image,omitzero"`
	// Packages and Removals do not come from a configuration. They are kept.
	Packages []string `json:"packages,omitempty"`
	Removals []string `json:"removals,omitempty"`
}

// record returns the record of this host. If there is none yet, or none of an image that is not the configured one, it
// is what has to be written: the host returns to that image if the change is undone.
func (e *Executor) record(s status, before update.OperatingSystem) (known record, err error) {
	isRecorded, err := durable.ReadRecord(e.Root, RecordPath, &known)
	if err != nil {
		return record{}, err
	}
	if !isRecorded {
		configured := targetOf(before, record{})
		known.Packages, known.Removals = without(s.next.Packages, configured.Packages), without(s.next.Removals, configured.Removals)
	}
	if before.Image == "" && known.Image.Name == "" {
		known.Image = s.next.Image
	}
	return known, nil
}

// tool is a program that changes the operating system.
type tool interface {
	status(ctx context.Context) (status, error)
	// refuse returns why the program can't make a deployment, and what to do, nil if it can.
	refuse(target deployment) error
	// stage downloads what change needs, without a deployment.
	stage(ctx context.Context, s status, target deployment, extensionsImage string) error
	// change makes the next deployment as the target, if it is not.
	change(ctx context.Context, s status, target deployment, extensionsImage string) error
}

// tool returns the program that changes this host.
func (e *Executor) tool() (tool, error) {
	switch {
	case slices.Contains(e.Programs, "rpm-ostree"):
		return rpmOSTree{rpmostree.Client{Runner: e.Runner}, e.Root}, nil
	case slices.Contains(e.Programs, "bootc"):
		return bootc{e.Runner}, nil
	}
	return nil, errors.New("the host has no program for it: use an image with rpm-ostree or bootc, or replace the Machine")
}
