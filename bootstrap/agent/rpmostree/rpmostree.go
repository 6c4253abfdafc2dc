// Package rpmostree runs rpm-ostree. Its daemon does one thing at a time for the whole host, and refuses everything
// else until then: the package waits.
package rpmostree

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/command"
)

// DefaultInterval is how long a client waits before it tries again.
const DefaultInterval = 10 * time.Second

// busy is a part of the message of rpm-ostree if the daemon does something else, such as a check for updates.
const busy = "Transaction in progress"

// Runner runs a program of the host and returns its standard output. A command.Runner is one.
type Runner interface {
	Run(ctx context.Context, name string, arguments ...string) ([]byte, error)
}

// Client runs rpm-ostree.
type Client struct {
	Runner Runner
	// Interval is how long it waits before it tries again, by default DefaultInterval.
	Interval time.Duration
}

// Run runs rpm-ostree and returns its standard output. While the daemon is busy, it tries again until the context ends.
func (c Client) Run(ctx context.Context, arguments ...string) ([]byte, error) {
	interval := c.Interval
	if interval <= 0 {
		interval = DefaultInterval
	}
	for {
		output, err := c.Runner.Run(ctx, "rpm-ostree", arguments...)
		if err == nil || !strings.Contains(command.Detail(err), busy) {
			return output, err
		}
		timer := time.NewTimer(interval)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("%w: wait for it, or end it with rpm-ostree cancel (%w)", err, context.Cause(ctx))
		}
	}
}
