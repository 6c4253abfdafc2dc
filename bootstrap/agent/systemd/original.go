package systemd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/durable"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/hostfiles"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// RecordPath is the file that says which units Poolboot enabled or disabled, and how they were before.
const RecordPath = hostfiles.DefaultStateDirectory + "/units.json"

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
	originals, err := e.readOriginals()
	if err != nil {
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

func (e Enablement) readOriginals() (map[string]original, error) {
	originals := map[string]original{}
	text, err := os.ReadFile(e.path(RecordPath))
	if errors.Is(err, fs.ErrNotExist) {
		return originals, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &originals)
	}
	if err == nil && originals == nil {
		err = errors.New("it contains null")
	}
	if err != nil {
		return nil, fmt.Errorf("read %s, which says how units were before: %w: remove it to let the agent record them again", RecordPath, err)
	}
	return originals, nil
}

func (e Enablement) writeOriginals(originals map[string]original) error {
	text, err := json.Marshal(originals)
	if err != nil {
		return err
	}
	if known, err := os.ReadFile(e.path(RecordPath)); err == nil && string(known) == string(text) {
		return nil
	}
	if err := durable.Write(e.path(RecordPath), text, 0o600); err != nil {
		return fmt.Errorf("record how units were before: %w", err)
	}
	return nil
}
