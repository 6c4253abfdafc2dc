package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// maxOlder is the maximum number of rendered configs that are kept in older spec versions. The API server limits the
// size of each to about 1.5 MiB, so they take 100 MiB at most, if many pools have hosts with an old Ignition.
const maxOlder = 64

// PoolBytes is the download of the hosts of a pool. It is immutable.
type PoolBytes struct {
	// file is the configuration. Ignition verifies its hash.
	file
	// inline is a data URL that contains the configuration, for the spec version in which a host cannot send its token
	// to a URL in a merge entry. It is empty for all others.
	inline string
	// tooOld is the reason why there are no bytes: the spec version cannot express the configuration.
	tooOld *ignition.VersionError
}

// PackRendered returns the download of a rendered config, in the newest spec version. It fails if the content does not
// match the hash in the name.
func PackRendered(rendered *poolv1.MachineConfig) (*PoolBytes, error) {
	if err := checkName(rendered); err != nil {
		return nil, err
	}
	plain, err := pool.Served(rendered.Name, rendered.Spec)
	if err != nil {
		return nil, fmt.Errorf("rendered MachineConfig %s/%s: %w", rendered.Namespace, rendered.Name, err)
	}
	packed, err := packFile(plain, pool.ServedHash(plain))
	return &PoolBytes{file: packed}, err
}

// Size returns the number of bytes that p takes in memory, and 0 for nil.
func (p *PoolBytes) Size() int {
	if p == nil {
		return 0
	}
	return len(p.gzip) + len(p.inline)
}

// convertTo returns the download for hosts that read no spec version newer than version.
func (p *PoolBytes) convertTo(version string) (*PoolBytes, error) {
	reader, err := gzip.NewReader(bytes.NewReader(p.gzip))
	if err != nil {
		return nil, err
	}
	newest, err := io.ReadAll(reader)
	if err != nil {
		return nil, err
	}
	config, err := ignition.Parse(newest)
	if err != nil {
		return nil, err
	}
	plain, err := ignition.WriteAs(config, version)
	if older := (*ignition.VersionError)(nil); errors.As(err, &older) {
		return &PoolBytes{tooOld: older}, nil
	}
	if err != nil {
		return nil, err
	}
	packed, err := packFile(plain, pool.ServedHash(plain))
	if err != nil {
		return nil, err
	}
	result := &PoolBytes{file: packed}
	if !ignition.SupportsReferences(version) {
		result.inline = ignition.DataURL(plain)
	}
	return result, nil
}

// variant is a rendered config in a spec version.
type variant struct {
	types.NamespacedName
	version string
}

// renderedBytes provides the downloads of rendered configs. The source has those in the newest spec version. Those in
// older versions are created once, when the first host requests them, and kept until the object changes or is deleted.
type renderedBytes struct {
	source  Source[types.NamespacedName, PoolBytes]
	metrics *Metrics
	flights singleflight.Group

	mu    sync.Mutex
	older *lru.Cache // variant → *PoolBytes
	drops uint64     // number of calls of drop; a result that was started before a drop is not kept after it
}

func newRenderedBytes(source Source[types.NamespacedName, PoolBytes], metrics *Metrics) *renderedBytes {
	return &renderedBytes{source: source, metrics: metrics, older: lru.NewWithEvictionFunc(maxOlder, func(_ lru.Key, value any) {
		metrics.AddRenderedBytes(-value.(*PoolBytes).Size())
	})}
}

// get returns the download of a rendered config, or nil if the rendered config does not exist.
func (b *renderedBytes) get(ctx context.Context, name types.NamespacedName, version string) (*PoolBytes, error) {
	if version == ignition.Version {
		return b.source.Get(ctx, name)
	}
	key := variant{name, version}
	if cached, ok := b.older.Get(key); ok {
		return cached.(*PoolBytes), nil
	}
	result, err, _ := b.flights.Do(name.String()+"/"+version, func() (any, error) {
		if cached, ok := b.older.Get(key); ok { // created by the flight before this one
			return cached, nil
		}
		b.mu.Lock()
		drops := b.drops
		b.mu.Unlock()
		// The first caller can disconnect, but callers that have joined it still need the result.
		newest, err := b.source.Get(context.WithoutCancel(ctx), name)
		if err != nil || newest == nil {
			return newest, err
		}
		older, err := newest.convertTo(version)
		if err != nil {
			return nil, fmt.Errorf("rendered MachineConfig %s in version %s: %w", name, version, err)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.drops == drops {
			b.older.Add(key, older)
			b.metrics.AddRenderedBytes(older.Size())
		}
		return older, nil
	})
	if err != nil {
		return nil, err
	}
	return result.(*PoolBytes), nil
}

// checkName returns an error if the content of a rendered config does not match the hash in its name, for example
// because a change bypassed the webhook.
func checkName(rendered *poolv1.MachineConfig) error {
	poolName := strings.TrimPrefix(rendered.Name, poolv1.RenderedNamePrefix)
	if end := strings.LastIndexByte(poolName, '-'); end >= 0 {
		poolName = poolName[:end]
	}
	want, err := pool.NameFor(poolName, rendered.Spec)
	if err != nil {
		return fmt.Errorf("rendered MachineConfig %s/%s: %w", rendered.Namespace, rendered.Name, err)
	}
	if want != rendered.Name {
		return fmt.Errorf("rendered MachineConfig %s/%s was changed: its content belongs to the name %s. Delete it; its pool renders it again",
			rendered.Namespace, rendered.Name, want)
	}
	return nil
}

// drop removes the downloads of a rendered config in older versions.
func (b *renderedBytes) drop(name types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drops++
	for _, version := range ignition.VersionsWritten {
		b.older.Remove(variant{name, version})
	}
}
