package metal3_test

import (
	"context"
	"errors"
	"strings"
	"sync"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3"
)

var _ metal3.Hardware = &powerLog{}

// powerLog is hardware that records power operations.
type powerLog struct {
	mu     sync.Mutex
	events []string
	// failing is the name of a host whose next boot fails.
	failing string
}

func (p *powerLog) fail(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failing = name
}

func (p *powerLog) fails(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	matches := p.failing == name
	if matches {
		p.failing = ""
	}
	return matches
}

func (p *powerLog) PowerOn(_ context.Context, host *bmov1alpha1.BareMetalHost, userData []byte) error {
	if p.fails(host.Name) {
		return errors.New("no boot device")
	}
	if userData == nil {
		p.add(host.Name + " boots again")
	} else {
		p.add(host.Name + " boots with " + string(userData))
	}
	return nil
}

func (p *powerLog) PowerOff(_ context.Context, host *bmov1alpha1.BareMetalHost) error {
	p.add(host.Name + " is off")
	return nil
}

func (p *powerLog) add(event string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, event)
}

// of returns a function that lists the operations on a host so far.
func (p *powerLog) of(host *bmov1alpha1.BareMetalHost) func() []string {
	return func() []string {
		p.mu.Lock()
		defer p.mu.Unlock()
		var events []string
		for _, event := range p.events {
			if strings.HasPrefix(event, host.Name+" ") {
				events = append(events, event)
			}
		}
		return events
	}
}
