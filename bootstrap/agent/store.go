package agent

import (
	"crypto/sha512"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/diskspace"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/durable"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
)

// store is the state directory of the agent, with its journal and the documents of the current revision and the target.
// Documents can be secret, so only root can read it.
type store struct {
	root *os.Root
	// directory is relative to the root.
	directory string
	// before is called before each change of the disk. Tests interrupt the agent with it.
	before func(change string)
	disk   diskspace.Host
}

// Endings of the names of documents, after the revision.
const (
	assignmentEnding = ".assignment"
	renderedEnding   = ".rendered"
)

// maxStored is the maximum size of a file in the store. A rendered config has about 1.5 MiB at most, before contents
// are decompressed.
const maxStored = 16 << 20

func openStore(root *os.Root, directory string) *store {
	return &store{root: root, directory: strings.TrimPrefix(directory, "/"), before: func(string) {}, disk: diskspace.Host{Root: root.Name()}}
}

// newStore returns a store, and creates its directory.
func newStore(root *os.Root, directory string) (*store, error) {
	s := openStore(root, directory)
	if err := root.MkdirAll(s.directory, 0o700); err != nil {
		return nil, err
	}
	return s, root.Chmod(s.directory, 0o700)
}

// pathOf returns the absolute path of a file, for messages.
func (s *store) pathOf(name string) string { return path.Join("/", s.directory, name) }

func (s *store) read(name string) ([]byte, error) {
	file, err := s.root.Open(path.Join(s.directory, name))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxStored+1))
	if err == nil && len(data) > maxStored {
		err = fmt.Errorf("%s has more than %d bytes", s.pathOf(name), maxStored)
	}
	return data, err
}

// write replaces a file in one step, and syncs it.
func (s *store) write(name string, data []byte) error {
	s.before("write " + name)
	return durable.Write(filepath.Join(s.root.Name(), s.directory, name), data, 0o600)
}

// errDocument means that the store does not have a document, or another one than it should.
var errDocument = errors.New("the document is not in the agent's state directory, or was changed there")

// put stores the documents of a revision.
func (s *store) put(revision string, document, rendered []byte) error {
	if err := s.write(revision+renderedEnding, rendered); err != nil {
		return err
	}
	return s.write(revision+assignmentEnding, document)
}

// get returns the assignment of a revision and its rendered config, both verified. The error is errDocument if they are
// not there.
func (s *store) get(revision string) (a assignment.Assignment, rendered []byte, err error) {
	document, err := s.read(revision + assignmentEnding)
	if err == nil {
		a, err = assignment.Decode(document, revision)
	}
	if err == nil {
		rendered, err = s.read(revision + renderedEnding)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, assignment.ErrOtherRevision),
		err == nil && !hasSHA512(rendered, a.Config.SHA512):
		return assignment.Assignment{}, nil, fmt.Errorf("%s: %w", s.pathOf(revision), errDocument)
	}
	return a, rendered, err
}

// keep deletes all documents but those of some revisions.
func (s *store) keep(revisions ...string) error {
	names, err := fs.ReadDir(s.root.FS(), s.directory)
	if err != nil {
		return err
	}
	kept := map[string]bool{}
	for _, revision := range revisions {
		kept[revision+assignmentEnding], kept[revision+renderedEnding] = true, true
	}
	for _, entry := range names {
		name := entry.Name()
		if revision, _, _ := strings.Cut(name, "."); isRevision(revision) && !kept[name] {
			s.before("remove " + name)
			err = errors.Join(err, s.root.Remove(path.Join(s.directory, name)))
		}
	}
	return err
}

// hasSHA512 compares a document with its hash in hex.
func hasSHA512(document []byte, want string) bool {
	sum := sha512.Sum512(document)
	return subtle.ConstantTimeCompare([]byte(hex.EncodeToString(sum[:])), []byte(strings.ToLower(want))) == 1
}
