package main

import (
	"crypto/x509"
	"fmt"
	"os"
)

// caFile is a file of CA certificates that may change while the manager runs, as a mounted Secret does.
type caFile string

// read returns the certificates as they are now; nothing without a file.
func (f caFile) read() ([]byte, error) {
	if f == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(string(f))
	if err != nil {
		return nil, fmt.Errorf("--config-server-ca-file: %w", err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--config-server-ca-file: %s holds no PEM certificate: put the config server's CA into it", f)
	}
	return pem, nil
}
