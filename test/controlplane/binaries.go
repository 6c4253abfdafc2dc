package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
)

// BinDir returns the folder of the programs that tests run: the environment variable POOLBOOT_BIN, or bin in the
// repository's root, which is found upwards of the working directory.
func BinDir() (string, error) {
	if dir := os.Getenv("POOLBOOT_BIN"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "bin"), nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("no go.mod upwards of the working directory: run inside the repository or set POOLBOOT_BIN")
		}
		dir = parent
	}
}

// binaries returns the folder of the programs that options ask for, and an error with the cure when one is missing.
func binaries(options Options) (string, error) {
	dir := options.BinDir
	if dir == "" {
		var err error
		if dir, err = BinDir(); err != nil {
			return "", err
		}
	}
	programs := []string{"etcd", "kube-apiserver"}
	if options.ControllerManager {
		programs = append(programs, "kube-controller-manager")
	}
	for _, program := range programs {
		if _, err := os.Stat(filepath.Join(dir, program)); err != nil {
			return "", fmt.Errorf("%s is missing (%w): run \"make binaries\", or set POOLBOOT_BIN to where it is", program, err)
		}
	}
	return dir, nil
}
