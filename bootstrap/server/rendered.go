package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// maxOlder bounds how many rendered configs are kept in older spec versions. One can't be larger than the API server
// takes (about 1.5 MiB), so this is some 100 MiB at the very most, where many pools have hosts with an old Ignition.
const maxOlder = 64

// PoolBytes is what the hosts of a pool download. It never changes.
type PoolBytes struct {
	// gzip is the configuration, compressed. It is the resource itself, not a transfer encoding: Ignition asks for
	// "identity" only, and decompresses by the merge entry's compression field.
	gzip []byte
	// sha512 is the hash, in hex, of the configuration before compression, which is what Ignition verifies.
	sha512 string
	// inline is a URL that holds the configuration itself, for the spec version in which a host can't be sent to a URL
	// with its token; else empty.
	inline string
	// older says why there are no bytes: the spec version can't say what the configuration says.
	older *ignition.VersionError
	// etag and length are header values.
	etag, length []string
}

// PackRendered makes what hosts download of a rendered config, in the newest spec version. It fails when the config is
// not what its name was made from.
func PackRendered(rendered *poolv1.MachineConfig) (*PoolBytes, error) {
	if err := fitsName(rendered); err != nil {
		return nil, err
	}
	plain, err := pool.Served(rendered.Name, rendered.Spec)
	if err != nil {
		return nil, fmt.Errorf("rendered MachineConfig %s/%s: %w", rendered.Namespace, rendered.Name, err)
	}
	return packPool(plain)
}

// packPool compresses a configuration.
func packPool(plain []byte) (*PoolBytes, error) {
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
	made := &PoolBytes{gzip: bytes.Clone(packed.Bytes()), sha512: hex.EncodeToString(sum[:])}
	made.etag, made.length = []string{`"` + made.sha512 + `"`}, []string{strconv.Itoa(len(made.gzip))}
	return made, nil
}

// Size is how many bytes it takes in memory.
func (p *PoolBytes) Size() int { return len(p.gzip) + len(p.inline) }

// as makes the bytes for hosts that read no spec version newer than the one named.
func (p *PoolBytes) as(version string) (*PoolBytes, error) {
	file, err := gzip.NewReader(bytes.NewReader(p.gzip))
	if err != nil {
		return nil, err
	}
	newest, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	config, err := ignition.Parse(newest)
	if err != nil {
		return nil, err
	}
	plain, err := ignition.WriteAs(config, version)
	if older := (*ignition.VersionError)(nil); errors.As(err, &older) {
		return &PoolBytes{older: older}, nil
	}
	if err != nil {
		return nil, err
	}
	made, err := packPool(plain)
	if err == nil && !ignition.ReadsReferences(version) {
		made.inline = ignition.Inline(plain)
	}
	return made, err
}

// variant is a rendered config in a spec version.
type variant struct {
	types.NamespacedName
	version string
}

// renderedBytes has the bytes of rendered configs. In the newest spec version they are there; those of older versions
// it makes when the first host asks, once, and keeps until the object changes or goes.
type renderedBytes struct {
	source  RenderedConfigs
	metrics *Metrics
	flights singleflight.Group

	mu    sync.Mutex
	older *lru.Cache // variant → *PoolBytes
	drops uint64     // how often drop was called: what was begun before a drop is not kept after it
}

func newRenderedBytes(source RenderedConfigs, metrics *Metrics) *renderedBytes {
	return &renderedBytes{source: source, metrics: metrics, older: lru.NewWithEvictionFunc(maxOlder, func(_ lru.Key, value any) {
		metrics.RenderedKept(-value.(*PoolBytes).Size())
	})}
}

// get returns the bytes of a rendered config, or nil when there is none of that name.
func (b *renderedBytes) get(ctx context.Context, name types.NamespacedName, version string) (*PoolBytes, error) {
	if version == ignition.Version {
		return b.source.Get(ctx, name)
	}
	wanted := variant{name, version}
	if made, ok := b.older.Get(wanted); ok {
		return made.(*PoolBytes), nil
	}
	made, err, _ := b.flights.Do(name.String()+"/"+version, func() (any, error) {
		if made, ok := b.older.Get(wanted); ok { // made while this flight was about to begin
			return made, nil
		}
		b.mu.Lock()
		drops := b.drops
		b.mu.Unlock()
		// The first caller may go away; those who joined it still want the result.
		newest, err := b.source.Get(context.WithoutCancel(ctx), name)
		if err != nil || newest == nil {
			return newest, err
		}
		made, err := newest.as(version)
		if err != nil {
			return nil, fmt.Errorf("rendered MachineConfig %s in version %s: %w", name, version, err)
		}
		b.keep(wanted, made, drops)
		return made, nil
	})
	if err != nil {
		return nil, err
	}
	return made.(*PoolBytes), nil
}

// fitsName makes sure that nothing is served under a name but what the name was made from, even where someone got a
// change past the webhook.
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

func (b *renderedBytes) keep(name variant, made *PoolBytes, drops uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.drops == drops {
		b.older.Add(name, made)
		b.metrics.RenderedKept(made.Size())
	}
}

// drop forgets the bytes of a rendered config in older versions.
func (b *renderedBytes) drop(name types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drops++
	for _, version := range ignition.VersionsWritten {
		b.older.Remove(variant{name, version})
	}
}
