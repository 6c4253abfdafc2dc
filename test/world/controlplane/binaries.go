package controlplane

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
)

// binaries returns the directory of the programs, or an error with the remedy if one is missing.
func binaries(options Options) (string, error) {
	dir := options.BinDir
	if dir == "" {
		var err error
		if dir, err = process.BinDir(); err != nil {
			return "", err
		}
	}
	programs := []string{"etcd", "kube-apiserver"}
	if options.ControllerManager {
		programs = append(programs, "kube-controller-manager")
	}
	for _, program := range programs {
		if _, err := os.Stat(filepath.Join(dir, program)); err != nil {
			return "", fmt.Errorf("%s is missing (%w): run \"make binaries\", with KUBERNETES_BIN=DIR if you have it in DIR", program, err)
		}
	}
	return dir, nil
}
