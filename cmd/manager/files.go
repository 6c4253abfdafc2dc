package main

import (
	"crypto/sha512"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/component-base/version"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
)

// agentFilePrefix is the prefix of the names of agents in a directory; the architecture follows.
const agentFilePrefix = "poolboot-agent-"

// oldestAgent is the oldest version of the agent that understands the assignments of this manager.
const oldestAgent = "v0.1.0"

// readAgents returns the agents in a directory, which have the version of this program. An architecture without a file
// has none. Without a directory, there are none at all.
func readAgents(directory string) (assignment.Agent, error) {
	if directory == "" {
		return assignment.Agent{}, nil
	}
	agent := assignment.Agent{Version: version.Get().GitVersion, Oldest: oldestAgent, SHA512: map[string]string{}}
	for _, architecture := range []poolv1.Architecture{poolv1.ArchitectureAMD64, poolv1.ArchitectureARM64} {
		hash, err := hashFile(filepath.Join(directory, agentFilePrefix+string(architecture)))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return assignment.Agent{}, fmt.Errorf("--agent-directory: %w", err)
		default:
			agent.SHA512[string(architecture)] = hash
		}
	}
	if len(agent.SHA512) == 0 {
		return assignment.Agent{}, fmt.Errorf("--agent-directory: %s has no file %s<architecture>: add the agents, or leave the flag out",
			directory, agentFilePrefix)
	}
	return agent, nil
}

// hashFile returns the SHA-512 of a file in hex. An empty file is an error, because a host could not start it.
func hashFile(name string) (string, error) {
	file, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	hash := sha512.New()
	size, err := io.Copy(hash, file)
	if err == nil && size == 0 {
		err = fmt.Errorf("%s is empty", name)
	}
	return hex.EncodeToString(hash.Sum(nil)), err
}

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
