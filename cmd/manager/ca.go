package main

import (
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
)

// caFile is a file with CA certificates, or a directory of such files (*.crt). It can change while the manager runs, as
// a mounted Secret does.
type caFile string

// read returns the current certificates, or nothing if there is no file.
func (f caFile) read() (all []byte, err error) {
	if f == "" {
		return nil, nil
	}
	files := []string{string(f)}
	if info, err := os.Stat(string(f)); err == nil && info.IsDir() {
		if files, err = filepath.Glob(filepath.Join(string(f), "*.crt")); err != nil {
			return nil, fmt.Errorf("--config-server-ca-file: %w", err)
		}
	}
	for _, file := range files {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("--config-server-ca-file: %w", err)
		}
		if !x509.NewCertPool().AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--config-server-ca-file: %s has no PEM certificate: add the CA certificate of the config server", file)
		}
		all = append(append(all, pem...), '\n')
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("--config-server-ca-file: no file matches %s/*.crt: add a file with the CA certificate of the config server", f)
	}
	return all, nil
}
