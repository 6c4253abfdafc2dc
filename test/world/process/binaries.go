package process

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

// BinDir returns the directory of the programs that tests run: the environment variable POOLBOOT_BIN, or bin in the
// root of the repository.
func BinDir() (string, error) {
	if dir := os.Getenv("POOLBOOT_BIN"); dir != "" {
		return filepath.Abs(dir)
	}
	root, err := sourcetree.Root()
	if err != nil {
		return "", fmt.Errorf("%w, or set POOLBOOT_BIN", err)
	}
	return filepath.Join(root, "bin"), nil
}
