package systemd

import (
	"context"
	"fmt"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/durable"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/hostfiles"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// RecordPath is the file that says which units Poolboot enabled or disabled, and how they were before.
const RecordPath = hostfiles.StateDirectory + "/units.json"

// original is how a unit was before Poolboot enabled or disabled it.
type original struct {
	// State is that of systemctl is-enabled, empty if there was no unit.
	State string `json:"state"`
	// Released is true if Poolboot restored the state. It is kept for the case that this is repeated after a power
	// failure, until Poolboot changes the unit again.
	Released bool `json:"released,omitempty"`
}

// remember records how units are before Poolboot changes them, and returns all records.
func (e Enablement) remember(ctx context.Context, operations []update.Operation) (map[string]original, error) {
	originals := map[string]original{}
	if _, err := durable.ReadRecord(e.Runner.Root, RecordPath, &originals); err != nil {
		return nil, err
	}
	for _, operation := range operations {
		known, isKnown := originals[operation.Name]
		if operation.Before.Enablement != update.Preset || isKnown && !known.Released {
			continue
		}
		state, err := e.state(ctx, operation.Name)
		if err != nil {
			return nil, fmt.Errorf("unit %s: %w", operation.Name, err)
		}
		originals[operation.Name] = original{State: state}
	}
	return originals, e.writeOriginals(originals)
}

// release marks the record of a unit that is as it was before.
func release(originals map[string]original, operation update.Operation) {
	if known, isKnown := originals[operation.Name]; isKnown && operation.After.Enablement == update.Preset {
		known.Released = true
		originals[operation.Name] = known
	}
}

func (e Enablement) writeOriginals(originals map[string]original) error {
	return durable.WriteRecord(e.Runner.Root, RecordPath, originals)
}
