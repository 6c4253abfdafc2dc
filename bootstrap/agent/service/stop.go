package service

import (
	"context"
	"errors"
	"strconv"
	"time"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent"
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
		err := c.reportBoot(ctx, agentv1.AgentStopped)
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

// reportStart reports that the agent runs again, if the Node says something else. What it goes on with can take an hour
// until the next report.
func (s *Service) reportStart(ctx context.Context, c *connection, node agent.Node) {
	was := node.Annotations[agentv1.BootAnnotation]
	if boot := (Clock{}).BootID(); s.Program != nil && was != "" && was != boot {
		if err := c.reportBoot(ctx, boot); err != nil {
			s.Log.Warn("report that the agent runs", "error", err)
		}
	}
}

// reportBoot reports the boot in which the agent runs, or that it has stopped. The manager understands no report
// without a version, and this can be the first one.
func (c *connection) reportBoot(ctx context.Context, boot string) error {
	version := strconv.Itoa(agentv1.ReportVersion)
	return c.cluster.Annotate(ctx, map[string]*string{agentv1.ReportVersionAnnotation: &version, agentv1.BootAnnotation: &boot})
}
