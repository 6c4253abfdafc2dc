// Package ledger compares figures of performance with the limits in test/bench/ledger.yaml, and writes them there.
package ledger

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"

	"sigs.k8s.io/yaml"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

// updateVariable is the environment variable with which Enter writes into the ledger.
const updateVariable = "UPDATE_LEDGER"

// path is the path of the ledger in the repository.
const path = "test/bench/ledger.yaml"

// Figure is a line of the ledger.
type Figure struct {
	// Measured is the value that was last written, in Unit.
	Measured float64 `json:"measured"`
	Unit     string  `json:"unit"`
	// Limit is the largest value that passes, or nil for a figure that depends on the machine.
	Limit *float64 `json:"limit,omitempty"`
	// By names the test or benchmark that measures it.
	By string `json:"by"`
}

// Read returns the figures by name.
func Read() (map[string]Figure, error) {
	raw, err := os.ReadFile(sourcetree.Path(path))
	if err != nil {
		return nil, err
	}
	figures := map[string]Figure{}
	if err := yaml.UnmarshalStrict(raw, &figures); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return figures, nil
}

// Enter returns an error if a measured value is above the limit of its figure. With UPDATE_LEDGER=1 it also writes the
// value into the ledger, which only one process may do at a time.
func Enter(name string, value float64) error {
	figures, err := Read()
	if err != nil {
		return err
	}
	figure, known := figures[name]
	if !known {
		return fmt.Errorf("%s has no figure %s: add a line for it", path, name)
	}
	if os.Getenv(updateVariable) != "" {
		if err := write(name, value); err != nil {
			return err
		}
	}
	if figure.Limit != nil && value > *figure.Limit {
		return fmt.Errorf("%s: %.6g %s, and the limit is %.6g: find what has become more expensive, or change the limit in %s and say why in the commit",
			name, value, figure.Unit, *figure.Limit, path)
	}
	return nil
}

// write replaces the measured value of a figure, and keeps the rest of the file.
func write(name string, value float64) error {
	file := sourcetree.Path(path)
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	line := regexp.MustCompile(`(?m)^(` + regexp.QuoteMeta(name) + `: +\{measured: )[^,]+`)
	return os.WriteFile(file, line.ReplaceAll(raw, []byte("${1}"+strconv.FormatFloat(math.Round(value*100)/100, 'f', -1, 64))), 0o600)
}
