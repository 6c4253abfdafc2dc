package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/loopback"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
)

// kubeadmHealthzPort is the port of the kubelet's health check for kubeadm, the default of the kubelet's configuration.
const kubeadmHealthzPort = 10248

// complete sets defaults and checks that the binaries exist.
func (o *Options) complete() (err error) {
	if o.Name == "" || o.Dir == "" {
		return errors.New("options Name and Dir must be set")
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return err
	}
	if o.BinDir == "" {
		if o.BinDir, err = process.BinDir(); err != nil {
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
		if *port, err = loopback.FreePort(); err != nil {
			return err
		}
	}
	return nil
}
