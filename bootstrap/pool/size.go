package pool

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// MaxSize is how large the spec of a rendered config may be, in bytes of JSON. etcd takes requests of up to 1.5 MiB
// (--max-request-bytes); the rest is for the object's metadata and for managed fields.
const MaxSize = 14 << 20 / 10

// MaxSources is how many MachineConfigs a pool may render. Its status lists their names, of up to 253 characters each,
// in an object that must fit into etcd too.
const MaxSources = 1000

// TooManyError says that a pool selects more MachineConfigs than its status can list.
type TooManyError struct {
	// Pool is the pool's name.
	Pool string
	// Count is how many MachineConfigs it renders, with those of worker, and Limit is how many it may.
	Count, Limit int
}

// Error names the pool, the numbers and the cure.
func (e *TooManyError) Error() string {
	return fmt.Sprintf("MachineConfigPool %q selects %d MachineConfigs, with those of worker, and at most %d can be rendered: "+
		"put several of them into one, or narrow spec.machineConfigSelector", e.Pool, e.Count, e.Limit)
}

// TooLargeError says that a pool's rendered config would not fit into etcd.
type TooLargeError struct {
	// Pool is the pool's name.
	Pool string
	// Size and Limit are in bytes of JSON.
	Size, Limit int
	// Largest are the MachineConfigs that add most, the largest first.
	Largest []SourceSize
}

// SourceSize is what one MachineConfig adds to a rendered config.
type SourceSize struct {
	// Name is the MachineConfig's name.
	Name string
	// Size is in bytes of JSON.
	Size int
}

// Error names the sizes, the largest MachineConfigs and the cure.
func (e *TooLargeError) Error() string {
	largest := make([]string, len(e.Largest))
	for i, source := range e.Largest {
		largest[i] = fmt.Sprintf("%s (%d bytes)", source.Name, source.Size)
	}
	return fmt.Sprintf("the rendered config of MachineConfigPool %q has %d bytes and at most %d can be stored; the largest "+
		"MachineConfigs are %s: compress their files (compression: gzip), or let the host fetch them from a URL",
		e.Pool, e.Size, e.Limit, strings.Join(largest, ", "))
}

// checkSize returns a *TooLargeError when the size of a rendered spec is larger than MaxSize.
func checkSize(poolName string, size int, sources []poolv1.MachineConfig) error {
	if size <= MaxSize {
		return nil
	}
	tooLarge := &TooLargeError{Pool: poolName, Size: size, Limit: MaxSize}
	for _, source := range sources {
		size, err := sizeOf(source.Spec)
		if err != nil {
			return err
		}
		tooLarge.Largest = append(tooLarge.Largest, SourceSize{Name: source.Name, Size: size})
	}
	slices.SortStableFunc(tooLarge.Largest, func(a, b SourceSize) int { return cmp.Compare(b.Size, a.Size) })
	tooLarge.Largest = tooLarge.Largest[:min(3, len(tooLarge.Largest))]
	return tooLarge
}

func sizeOf(spec poolv1.MachineConfigSpec) (int, error) {
	raw, err := json.Marshal(spec)
	return len(raw), err
}
