package registration

import (
	"fmt"
	"regexp"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/nodelabels"
)

// maxSyncedInstructions is the maximum number of instructions of a compiled regular expression in CompileSyncedLabels.
// Each expression is matched against each label key of each Machine. A label key has at most 317 characters.
const maxSyncedInstructions = 1000

// CompileSyncedLabels compiles the values of the flag --additional-sync-machine-labels, as Cluster API does. It rejects
// an expression whose repetitions {n} would make a match slow.
func CompileSyncedLabels(expressions []string) ([]*regexp.Regexp, error) {
	compiled := make([]*regexp.Regexp, 0, len(expressions))
	for _, expression := range expressions {
		measure, err := nodelabels.MeasureRegexp(expression)
		if err != nil {
			return nil, fmt.Errorf("--additional-sync-machine-labels: %w", err)
		}
		if measure.Instructions > maxSyncedInstructions {
			return nil, fmt.Errorf("--additional-sync-machine-labels: %q has %d instructions when it is compiled, the limit is %d: use smaller repetitions {n}",
				expression, measure.Instructions, maxSyncedInstructions)
		}
		re, err := regexp.Compile(expression)
		if err != nil {
			return nil, fmt.Errorf("--additional-sync-machine-labels: %q: %w", expression, err)
		}
		compiled = append(compiled, re)
	}
	return compiled, nil
}
