package pool

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// MaxSize is the maximum size of a rendered config's spec, in bytes of JSON. etcd takes requests of up to 1.5 MiB
// (--max-request-bytes); the rest is for the object's metadata and for managed fields.
const MaxSize = 14 << 20 / 10

// MaxSources is the maximum number of MachineConfigs that a pool can render. Its status lists their names, of up to 253
// characters each, and must fit into etcd.
const MaxSources = 1000

// TooManyError is the error for a pool that selects more MachineConfigs than its status can list.
type TooManyError struct {
	// Pool is the pool's name.
	Pool string
	// Count is the number of MachineConfigs, including those of worker.
	Count int
}

// Error names the pool, the numbers and the remedy.
func (e *TooManyError) Error() string {
	return fmt.Sprintf("MachineConfigPool %q selects %d MachineConfigs, including those of worker, and at most %d can be rendered: "+
		"merge several of them into one, or narrow spec.machineConfigSelector", e.Pool, e.Count, MaxSources)
}

// TooLargeError is the error for a pool whose rendered config does not fit into etcd.
type TooLargeError struct {
	// Pool is the pool's name.
	Pool string
	// Size is in bytes of JSON.
	Size int
	// Largest are the largest MachineConfigs, in descending order.
	Largest []SourceSize
}

// SourceSize is the size of one MachineConfig.
type SourceSize struct {
	// Name is the MachineConfig's name.
	Name string
	// Size is in bytes of JSON.
	Size int
}

// Error names the sizes, the largest MachineConfigs and the remedy.
func (e *TooLargeError) Error() string {
	largest := make([]string, len(e.Largest))
	for i, source := range e.Largest {
		largest[i] = fmt.Sprintf("%s (%d bytes)", source.Name, source.Size)
	}
	return fmt.Sprintf("the rendered config of MachineConfigPool %q has %d bytes and at most %d can be stored; the largest "+
		"MachineConfigs are %s: compress their files (compression: gzip), or let the host fetch them from a URL",
		e.Pool, e.Size, MaxSize, strings.Join(largest, ", "))
}

// checkSize returns a *TooLargeError if a rendered spec is larger than MaxSize.
func checkSize(poolName string, size int, sources []poolv1.MachineConfig) error {
	if size <= MaxSize {
		return nil
	}
	tooLarge := &TooLargeError{Pool: poolName, Size: size}
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
