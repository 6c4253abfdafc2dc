package service

import (
	"context"
	"errors"
	"time"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/kubelet"
)

const (
	// stopTime is how long it is tried to report that the agent has stopped.
	stopTime = 15 * time.Second
	// stopInterval is the time between two tries.
	stopInterval = 2 * time.Second
)

// ReportStop reports that the agent of this host has stopped, in another process than the agent. There is nothing to
// report before the host has joined.
func (s *Service) ReportStop(ctx context.Context) error {
	c, err := s.connect()
	if unusable := (*settingsError)(nil); errors.Is(err, kubelet.ErrNotJoined) {
		return nil
	} else if err != nil && !errors.As(err, &unusable) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	for {
		stopped := agentv1.AgentStopped
		err := c.cluster.Annotate(ctx, map[string]*string{agentv1.BootAnnotation: &stopped})
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(stopInterval):
		}
	}
}
