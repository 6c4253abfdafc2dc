package service

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/configserver"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/kubelet"
)

const (
	// registerTime is how long the kubelet waits for the registration at most.
	registerTime = time.Minute
	// registerInterval is the time between two requests. The config server holds each for up to 10 s.
	registerInterval = 2 * time.Second
)

// Register requests that the Node of this host is pre-registered, before the kubelet starts. It returns when it is, and
// otherwise why the kubelet starts without that: then everything is as on a host without an agent. It takes at most a
// minute. The server decides whether the certificate is valid: after a boot, the clock of the host can be wrong.
func (s *Service) Register(ctx context.Context) error {
	host := kubelet.Host{Root: s.Root}
	if _, err := host.Certificate(); err != nil {
		return err
	}
	settings, err := s.readSettings()
	if err != nil {
		return err
	}
	server, err := configServer(settings, host.Certificate)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, registerTime)
	defer cancel()
	for {
		err := server.Register(ctx)
		var refused *configserver.StatusError
		if err == nil || errors.As(err, &refused) && isFinal(refused.Code) {
			return err
		}
		s.Log.Info("the Node is not registered yet", "reason", err.Error())
		select {
		case <-ctx.Done():
			return err
		case <-time.After(registerInterval):
		}
	}
}

// isFinal reports whether another request would get the same status.
func isFinal(status int) bool {
	return status >= http.StatusBadRequest && status < http.StatusInternalServerError && status != http.StatusTooManyRequests && status != http.StatusRequestTimeout
}
