// Package kubeletflags changes the kubelet's flags on a host that joined with kubeadm.
//
// kubeadm computed them from its configuration when the host joined, and wrote them to a file of its own. There the
// package changes the flags of Poolboot, such as --node-labels and --register-with-taints, and keeps all others, with
// their order. They apply when the kubelet restarts.
//
// A host that joined without kubeadm has the flags in a file of its configuration, and does not need this package.
package kubeletflags

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/durable"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// Executor changes the flags. It is not safe for concurrent use.
type Executor struct {
	// Root is the root directory of the host, / if it is empty.
	Root string
}

// Apply makes the flags follow kubeadm's configuration, of which the operation changes the file. It does nothing if
// that is added or removed, because then it is not the one that the host joined with. It can be repeated, and undone.
func (e *Executor) Apply(_ context.Context, operation update.Operation) error {
	if operation.Before.Path == nil || operation.After.Path == nil {
		return nil
	}
	if err := e.change(operation.Before.Path, operation.After.Path); err != nil {
		return fmt.Errorf("change the flags of the kubelet: %w", err)
	}
	return nil
}

func (e *Executor) change(before, after *hosttree.Entry) error {
	old, err := flagsOf(before)
	if err != nil {
		return err
	}
	now, err := flagsOf(after)
	if err != nil {
		return err
	}
	name := filepath.Join("/", e.Root, ignition.KubeadmFlagsPath)
	document, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s does not exist, which kubeadm wrote when the host joined: restore it, or replace the Machine", ignition.KubeadmFlagsPath)
	}
	if err != nil {
		return err
	}
	changed, err := Rewrite(document, old, now)
	if err != nil {
		return fmt.Errorf("%s: %w", ignition.KubeadmFlagsPath, err)
	}
	if string(changed) == string(document) {
		return nil
	}
	return durable.Write(name, changed, 0o644)
}

// flagsOf returns the flags in the file with kubeadm's configuration.
func flagsOf(entry *hosttree.Entry) ([]Flag, error) {
	contents := entry.Contents
	for _, source := range entry.Sources {
		part, err := hosttree.Decode(source, nil)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", ignition.KubeadmJoinPath, err)
		}
		contents = append(contents, part...)
	}
	flags, err := FlagsOf(contents)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ignition.KubeadmJoinPath, err)
	}
	return flags, nil
}
