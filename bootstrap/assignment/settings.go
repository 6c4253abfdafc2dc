package assignment

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// SettingsPath is where the overlay writes the Settings of the agent.
const SettingsPath = ignition.OwnDirectory + "/agent.json"

// ProgramPath is where the overlay writes the agent. /var is writable and survives updates of every operating system
// that Ignition installs.
const ProgramPath = ignition.StateDirectory + "/bin/poolboot-agent"

// PreviousProgramPath is where the agent keeps the program that another one replaced, until that one works.
const PreviousProgramPath = ProgramPath + ".previous"

// Units of the agent.
const (
	// AgentUnit runs the agent.
	AgentUnit = ignition.AgentUnit
	// RegisterUnit pre-registers the Node before the kubelet starts, at every boot.
	RegisterUnit = ignition.RegisterUnit
)

// Settings are what the agent needs to reach the config server. They contain no secrets.
type Settings struct {
	// Server is the external URL of the config server.
	Server string `json:"server"`
	// CA is the PEM bundle that verifies the certificate of the config server. If it is empty, the host's does.
	CA string `json:"ca,omitempty"`
	// Namespace and Name are those of the PoolbootConfig, and PointerID is its pointer ID.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	PointerID string `json:"pointerID"`
}

// ReadSettings reads Settings from JSON.
func ReadSettings(raw []byte) (Settings, error) {
	var s Settings
	if err := json.Unmarshal(raw, &s); err != nil {
		return Settings{}, fmt.Errorf("%s: %w", SettingsPath, err)
	}
	if _, err := url.Parse(s.Server); err != nil || s.Server == "" || s.Namespace == "" || s.Name == "" || s.PointerID == "" {
		return Settings{}, fmt.Errorf("%s: %w", SettingsPath, errors.New("server, namespace, name or pointerID is missing or malformed"))
	}
	return s, nil
}

// UpdateURL returns where the assignment is (GET), and where the Node is pre-registered (POST).
func (s *Settings) UpdateURL() (string, error) {
	return url.JoinPath(s.Server, "update", s.Namespace, s.Name, s.PointerID)
}

// RenderedURL returns where a rendered config is.
func (s *Settings) RenderedURL(name string) (string, error) {
	base, err := url.JoinPath(s.Server, "rendered", s.Namespace, name)
	return base + "?config=" + s.Name + "&pointer=" + s.PointerID, err
}

// AgentURL returns where the gzip file of the agent with a hash is.
func AgentURL(server, sha512 string) (string, error) { return url.JoinPath(server, "agent", sha512) }
