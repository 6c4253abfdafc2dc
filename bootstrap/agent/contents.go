package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"path/filepath"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/utils/ptr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/durable"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// contentsDirectory has what was downloaded for an update, below the state directory: contents of files, by a hash of
// where they are, and the program of another agent, by its own hash. It is removed when no update is next.
const contentsDirectory = "contents"

// stagedName is the name of the file there with the revision for which everything is on the host.
const stagedName = "staged"

func (s *store) contentsPath(key string) string {
	return path.Join(s.directory, contentsDirectory, key)
}

// keyOf returns the name of the file with the contents of a resource.
func keyOf(resource types.Resource) (string, error) {
	raw, err := json.Marshal(resource)
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:]), err
}

// putContents stores contents, if the disk has room for them.
func (s *store) putContents(key string, contents []byte) error {
	if err := s.disk.Check(s.pathOf(""), int64(len(contents))); err != nil {
		return err
	}
	s.before("write " + contentsDirectory)
	return durable.Write(filepath.Join(s.root.Name(), s.contentsPath(key)), contents, 0o600)
}

// keepContents removes all contents but those with some keys.
func (s *store) keepContents(kept map[string]bool) error {
	if len(kept) == 0 {
		return s.root.RemoveAll(s.contentsPath(""))
	}
	names, err := fs.ReadDir(s.root.FS(), s.contentsPath(""))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range names {
		if !kept[entry.Name()] {
			err = errors.Join(err, s.root.Remove(s.contentsPath(entry.Name())))
		}
	}
	return err
}

// isStaged reports whether everything that the update to a revision needs is on the host.
func (s *store) isStaged(revision string) bool {
	staged, err := s.root.ReadFile(s.contentsPath(stagedName))
	return err == nil && string(staged) == revision
}

// unstage forgets that. What can't be forgotten is downloaded after the drain.
func (s *store) unstage() { _ = s.root.Remove(s.contentsPath(stagedName)) }

// contents returns the verified contents of a resource: those that are on the host, or else what it downloads, which
// are on the host then. The error names the host of the URL, and nothing else of it: a URL can have a signature.
func (a *Agent) contents(ctx context.Context, resource types.Resource) ([]byte, error) {
	key, err := keyOf(resource)
	if err != nil {
		return nil, err
	}
	if stored, err := a.store.root.ReadFile(a.store.contentsPath(key)); err == nil && ignition.Verify(stored, resource) == nil {
		return stored, nil
	}
	contents, err := a.Source.Contents(ctx, resource)
	if err == nil {
		err = ignition.Verify(contents, resource)
	}
	if err != nil {
		host := "its URL"
		if address, err := url.Parse(ptr.Deref(resource.Source, "")); err == nil && address.Host != "" {
			host = address.Host
		}
		if strings.HasPrefix(err.Error(), host+": ") {
			return nil, fmt.Errorf("download from %w", err)
		}
		return nil, fmt.Errorf("download from %s: %w", host, err)
	}
	if a.journal.Phase == adopting { // Ignition has written them
		return contents, nil
	}
	return contents, a.store.putContents(key, contents)
}
