package durable

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ReadRecord reads a record from a file of JSON on a host with a root directory, and reports false if there is none.
func ReadRecord(root, name string, record any) (isThere bool, err error) {
	text, err := os.ReadFile(filepath.Join("/", root, name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	}
	if err = json.Unmarshal(text, record); err == nil && string(text) == "null" {
		err = errors.New("it contains null")
	}
	if err != nil {
		return false, fmt.Errorf("%s is damaged, which says how the host was before Poolboot changed it: %w: restore it from a backup, "+
			"or remove it to let the agent record how the host is now", name, err)
	}
	return true, nil
}

// WriteRecord writes a record, which only root can read then. It does not write the same one again.
func WriteRecord(root, name string, record any) error {
	text, err := json.Marshal(record)
	if err != nil {
		return err
	}
	path := filepath.Join("/", root, name)
	if known, err := os.ReadFile(path); err == nil && string(known) == string(text) {
		return nil
	}
	if err := Write(path, text, 0o600); err != nil {
		return fmt.Errorf("record how the host was: %w", err)
	}
	return nil
}
