package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// maxRendered bounds how many variants of rendered configs are kept ready. A rendered config can't be larger than the API server takes
// (about 1.5 MiB), so this is some 100 MiB at the very most.
const maxRendered = 64

// variant is a rendered config in a spec version.
type variant struct {
	types.NamespacedName
	version string
}

// poolBytes is what the hosts of a pool download.
type poolBytes struct {
	// gzip is the configuration, compressed. It is the resource itself, not a transfer encoding: Ignition asks for
	// "identity" only, and decompresses by the merge entry's compression field.
	gzip []byte
	// sha512 is the hash, in hex, of the configuration before compression, which is what Ignition verifies.
	sha512 string
	// inline is a URL that holds the configuration itself, for the spec version in which a host can't be sent to a URL with its
	// token; else empty.
	inline string
	// older says why there are no bytes: the spec version can't say what the configuration says.
	older *ignition.VersionError
}

func (p *poolBytes) size() float64 { return float64(len(p.gzip) + len(p.inline)) }

// renderedBytes makes the bytes of each variant of a rendered config once and keeps them until the object changes or goes.
type renderedBytes struct {
	source  RenderedConfigs
	metrics *Metrics
	flights singleflight.Group

	mu    sync.Mutex
	ready *lru.Cache // variant → *poolBytes
	drops uint64     // how often drop was called: what was begun before a drop is not kept after it
}

func newRenderedBytes(source RenderedConfigs, metrics *Metrics) *renderedBytes {
	return &renderedBytes{source: source, metrics: metrics, ready: lru.NewWithEvictionFunc(maxRendered, func(_ lru.Key, value any) {
		metrics.renderedBytes.Sub(value.(*poolBytes).size())
	})}
}

// get returns the bytes of a rendered config, or nil when there is none of that name.
func (b *renderedBytes) get(ctx context.Context, name variant) (*poolBytes, error) {
	if ready, ok := b.ready.Get(name); ok {
		return ready.(*poolBytes), nil
	}
	made, err, _ := b.flights.Do(name.String()+"/"+name.version, func() (any, error) {
		if ready, ok := b.ready.Get(name); ok { // made while this flight was about to begin
			return ready, nil
		}
		b.mu.Lock()
		drops := b.drops
		b.mu.Unlock()
		// The first caller may go away; those who joined it still want the result.
		made, err := b.make(context.WithoutCancel(ctx), name)
		if made != nil {
			b.keep(name, made, drops)
		}
		return made, err
	})
	if err != nil {
		return nil, err
	}
	return made.(*poolBytes), nil
}

func (b *renderedBytes) make(ctx context.Context, name variant) (*poolBytes, error) {
	rendered, err := b.source.Get(ctx, name.NamespacedName)
	if err != nil || rendered == nil {
		return nil, err
	}
	if err := fitsName(rendered); err != nil {
		return nil, err
	}
	plain, err := pool.ServedAs(rendered.Name, rendered.Spec, name.version)
	if older := (*ignition.VersionError)(nil); errors.As(err, &older) {
		return &poolBytes{older: older}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("rendered MachineConfig %s: %w", name.NamespacedName, err)
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(plain); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	sum := sha512.Sum512(plain)
	made := &poolBytes{gzip: packed.Bytes(), sha512: hex.EncodeToString(sum[:])}
	if !ignition.ReadsReferences(name.version) {
		made.inline = ignition.Inline(plain)
	}
	return made, nil
}

// fitsName makes sure that nothing is served under a name but what the name was made from, even where someone got a change
// past the webhook.
func fitsName(rendered *poolv1.MachineConfig) error {
	poolName := strings.TrimPrefix(rendered.Name, poolv1.RenderedNamePrefix)
	if end := strings.LastIndexByte(poolName, '-'); end >= 0 {
		poolName = poolName[:end]
	}
	want, err := pool.NameFor(poolName, rendered.Spec)
	if err != nil {
		return fmt.Errorf("rendered MachineConfig %s/%s: %w", rendered.Namespace, rendered.Name, err)
	}
	if want != rendered.Name {
		return fmt.Errorf("rendered MachineConfig %s/%s was changed: its content belongs to the name %s. Delete it; its pool renders it anew",
			rendered.Namespace, rendered.Name, want)
	}
	return nil
}

func (b *renderedBytes) keep(name variant, made *poolBytes, drops uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.drops == drops {
		b.ready.Add(name, made)
		b.metrics.renderedBytes.Add(made.size())
	}
}

// drop forgets the bytes of a rendered config, in every version.
func (b *renderedBytes) drop(name types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drops++
	for _, version := range ignition.VersionsWritten {
		b.ready.Remove(variant{name, version})
	}
}
