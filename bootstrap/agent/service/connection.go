package service

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"time"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/apiserver"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/configserver"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/kubelet"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
)

// connection is how the agent reaches the servers.
type connection struct {
	node    string
	server  kubelet.APIServer
	cluster *apiserver.Client
	source  *configserver.Client
	// settings is the file of settings that source was created with.
	settings []byte
}

// connect returns the connection. The error is kubelet.ErrNotJoined if the host has not joined yet.
func (s *Service) connect() (*connection, error) {
	host := kubelet.Host{Root: s.Root}
	certificate, err := host.Certificate()
	if err != nil {
		return nil, err
	}
	c := &connection{}
	if c.node, err = kubelet.NodeName(certificate); err != nil {
		return nil, err
	}
	if c.server, err = host.APIServer(); err != nil {
		return nil, err
	}
	c.cluster = apiserver.New(c.server, c.node, host.Certificate)
	if c.settings, err = s.readSettings(); err == nil {
		c.source, err = configServer(c.settings, host.Certificate)
	}
	if err != nil {
		return c, &settingsError{err}
	}
	return c, nil
}

// settingsError means that the settings are missing or damaged. The connection to the API server does not need them.
type settingsError struct{ err error }

func (e *settingsError) Error() string {
	return "the agent can't reach the config server: " + e.err.Error() + ": write the file again, or replace the host"
}
func (e *settingsError) Unwrap() error { return e.err }

func (s *Service) readSettings() ([]byte, error) {
	return s.Root.ReadFile(strings.TrimPrefix(assignment.SettingsPath, "/"))
}

// errOtherSettings means that an update changed how the config server is reached.
var errOtherSettings = errors.New(assignment.SettingsPath + " changed: the agent starts again")

// checkSettings returns errOtherSettings if the settings are not those of the connection any more. Settings that can't
// be read are a difference that the agent reports.
func (s *Service) checkSettings(c *connection) error {
	if now, err := s.readSettings(); err != nil || bytes.Equal(now, c.settings) {
		return nil //nolint:nilerr // the agent goes on with the settings that it has
	}
	return errOtherSettings
}

func configServer(raw []byte, certificate func() (*tls.Certificate, error)) (*configserver.Client, error) {
	settings, err := assignment.ReadSettings(raw)
	if err != nil {
		return nil, err
	}
	return configserver.New(settings, certificate)
}

// waitForJoin returns the connection once the host has joined its cluster.
func (s *Service) waitForJoin(ctx context.Context) (*connection, error) {
	for isLogged := false; ; isLogged = true {
		c, err := s.connect()
		if !errors.Is(err, kubelet.ErrNotJoined) {
			return c, err
		}
		if !isLogged {
			s.Log.Info("the agent waits until the host has joined its cluster", "reason", err.Error())
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(joinInterval):
		}
	}
}

// waitAfter waits after the watch failed. If the kubelet's API server is another one since, the agent must start again.
func (s *Service) waitAfter(ctx context.Context, cancel context.CancelCauseFunc, c *connection, failures int) {
	if failures%failuresBeforeRestart == 0 {
		now, err := kubelet.Host{Root: s.Root}.APIServer()
		if err == nil && (now.URL.String() != c.server.URL.String() || !now.CAs.Equal(c.server.CAs)) {
			cancel(errors.New("the API server in the kubelet's kubeconfig changed: the agent starts again"))
			return
		}
	}
	timer := time.NewTimer(retryAfter(failures))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
