package main

import (
	"crypto/sha512"
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
