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
	content ignition.PackedOverlay
}

func newPackedOverlays() *packedOverlays { return &packedOverlays{ready: lru.New(maxPacked)} }

// get returns a machine's overlay, packed. It fails when the overlay is no Ignition; the error may quote the overlay.
func (p *packedOverlays) get(config types.UID, overlay *Overlay) (ignition.PackedOverlay, error) {
	if ready, ok := p.ready.Get(config); ok && ready.(packedOverlay).version == overlay.Version {
		return ready.(packedOverlay).content, nil
	}
	content, err := ignition.PackOverlay(overlay.Ignition)
	if err != nil {
		return "", err
	}
	p.ready.Add(config, packedOverlay{version: overlay.Version, content: content})
	return content, nil
}

// drop forgets a machine's overlay, and the join credential in it.
func (p *packedOverlays) drop(config types.UID) { p.ready.Remove(config) }
