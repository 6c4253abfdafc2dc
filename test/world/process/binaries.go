package process

import (
	"errors"
	"os"
	"path/filepath"
)

// BinDir returns the directory of the programs that tests run: the environment variable POOLBOOT_BIN, or bin in the
// repository's root, which is the first parent of the working directory with a go.mod.
func BinDir() (string, error) {
	if dir := os.Getenv("POOLBOOT_BIN"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "bin"), nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.mod upwards of the working directory: run inside the repository or set POOLBOOT_BIN")
		}
	}
}
