package host

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// kubeadmHealthzPort is where kubeadm waits for the kubelet, by the default of the kubelet's configuration.
const kubeadmHealthzPort = 10248

// BinDir is the folder with the real binaries: $POOLBOOT_BIN, else bin in the root of this repository.
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
			return "", errors.New("no go.mod above the working directory: set POOLBOOT_BIN to the folder of the binaries")
		}
	}
}

// complete fills in what was left open and checks that the binaries are there.
func (o *Options) complete() (err error) {
	if o.Name == "" || o.Dir == "" {
		return errors.New("options Name and Dir must be set")
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return err
	}
	if o.BinDir == "" {
		if o.BinDir, err = BinDir(); err != nil {
			return err
		}
	}
	for _, name := range append([]string{"ignition"}, mountPoints[o.Image]...) {
		if _, err := os.Stat(filepath.Join(o.BinDir, name)); err != nil {
			return fmt.Errorf("%w; run make binaries", err)
		}
	}
	if o.HealthzPort == 0 && o.Image == KubeadmImage {
		o.HealthzPort = kubeadmHealthzPort
	}
	for _, port := range []*int{&o.KubeletPort, &o.HealthzPort} {
		if *port != 0 {
			continue
		}
		if *port, err = freePort(); err != nil {
			return err
		}
	}
	return nil
}

// freePort is a TCP port that nobody listens on now.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
