package osimage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/rpmostree"
)

// bootc changes the image of a host without rpm-ostree.
type bootc struct{ runner rpmostree.Runner }

// bootcStatus is the part of a BootcHost (org.containers.bootc/v1) that counts.
type bootcStatus struct {
	Status struct {
		Staged, Booted, Rollback *bootcEntry
		RollbackQueued           bool
	}
}

type bootcEntry struct {
	Image *struct {
		Image struct {
			Image, Transport string
		}
		ImageDigest string
	}
	Incompatible bool
}

func (t bootc) status(ctx context.Context) (status, error) {
	output, err := t.runner.Run(ctx, "bootc", "status", "--format=json")
	if err != nil {
		return status{}, err
	}
	var parsed bootcStatus
	if err := json.Unmarshal(output, &parsed); err != nil {
		return status{}, fmt.Errorf("bootc status --format=json: %w", err)
	}
	found := parsed.Status
	if found.Booted == nil {
		return status{}, errors.New("the host did not boot an image of bootc: use such an image, or replace the Machine")
	}
	if found.Booted.Incompatible {
		return status{}, errors.New("the host has changes that bootc does not know, such as packages of rpm-ostree: use an image with rpm-ostree, or replace the Machine")
	}
	next := found.Booted
	if found.Staged != nil {
		next = found.Staged
	} else if found.RollbackQueued && found.Rollback != nil {
		next = found.Rollback
	}
	return status{booted: found.Booted.deployment(), next: next.deployment(), isPending: next != found.Booted}, nil
}

func (e *bootcEntry) deployment() (d deployment) {
	if e.Image != nil {
		d.Image = image{Name: e.Image.Image.Image, Transport: e.Image.Image.Transport, Digest: e.Image.ImageDigest}
	}
	return d
}

func (t bootc) refuse(target deployment) error {
	if len(target.Packages) > 0 || len(target.Removals) > 0 {
		return errors.New("bootc can't install extensions or another kernel: use an image that contains them, or one with rpm-ostree")
	}
	return refuseUnknown(target)
}

// stage does nothing: bootc switch makes the deployment that the host boots next, whenever it does.
func (t bootc) stage(context.Context, status, deployment, string) error { return nil }

func (t bootc) change(ctx context.Context, s status, target deployment, _ string) error {
	if s.next.is(target) {
		return nil
	}
	name := target.Image.pinned()
	if s.booted.is(target) {
		name = s.booted.Image.Name // it is there already
	}
	_, err := t.runner.Run(ctx, "bootc", "switch", "--transport="+target.Image.Transport, name)
	return err
}
