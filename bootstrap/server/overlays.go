package server

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// maxPacked bounds how many overlays are kept packed, at some 5 KiB each. One that is forgotten is packed again.
const maxPacked = 4096

// packedOverlays packs each overlay once and keeps it until it changes or goes. A host's token is no part of it: the server
// keeps no token.
type packedOverlays struct {
	ready *lru.Cache // types.UID of the PoolbootConfig → packedOverlay
}

type packedOverlay struct {
	version string // the Overlay's Version
	spec    string // the spec version that it is written in
	content ignition.PackedOverlay
}

func newPackedOverlays() *packedOverlays { return &packedOverlays{ready: lru.New(maxPacked)} }

// get returns a machine's overlay, packed for a host that reads a spec version. It fails when the overlay is no Ignition, and
// then the error may quote the overlay; and with an *ignition.VersionError, which does not. The same host always asks alike, so
// one version is kept.
func (p *packedOverlays) get(config types.UID, overlay *Overlay, spec string) (ignition.PackedOverlay, error) {
	if known, ok := p.ready.Get(config); ok {
		if ready := known.(packedOverlay); ready.version == overlay.Version && ready.spec == spec {
			return ready.content, nil
		}
	}
	content, err := ignition.PackOverlay(overlay.Ignition, spec)
	if err != nil {
		return "", err
	}
	p.ready.Add(config, packedOverlay{version: overlay.Version, spec: spec, content: content})
	return content, nil
}

// drop forgets a machine's overlay, and the join credential in it.
func (p *packedOverlays) drop(config types.UID) { p.ready.Remove(config) }
