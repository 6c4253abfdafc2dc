package ignition

import (
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"github.com/coreos/ignition/v2/config/v3_1/types"
	"github.com/vincent-petithory/dataurl"
)

const (
	gzipCompression = "gzip"
	sha512Prefix    = "sha512-"
)

// Boot is the config server's answer to a host that follows its pointer: first the pool's configuration, then the
// machine's own part, which wins. It is of spec 3.1, or of 3.0 for a host that reads nothing newer.
//
// How the pool's bytes travel was read in Ignition's source (v2.27.0, internal/resource/url.go and
// internal/exec/config_fetcher.go). Ignition asks with "Accept-Encoding: identity" and undoes no Content-Encoding. It undoes
// gzip when the merge entry says "compression: gzip", and the entry's verification is then of the bytes that come out. So
// the server sends a gzip file as the body, without Content-Encoding, and PoolSHA512 is the hash of what was packed.
//
// References of spec 3.0 carry no token and are not compressed, so there both parts are in the answer as they are.
type Boot struct {
	// Version is the spec version that the host reads: one of VersionsWritten, and Version when it is empty.
	Version string
	// PoolURL is where the pool's configuration is, as a gzip file; for spec 3.0 what Inline made of it.
	PoolURL string
	// PoolSHA512 is the SHA-512 of the pool's configuration before compression, in hex.
	PoolSHA512 string
	// Token is the machine's bearer token; the pool's configuration is handed out against it too.
	Token string
	// Overlay is the machine's own Ignition. It holds its join credential.
	Overlay PackedOverlay
}

// ReadsReferences says whether a host that reads a spec version can be sent to a URL with its token.
func ReadsReferences(version string) bool { return version != versionWithoutHeaders }

// Inline is the URL of a document that carries it in itself.
func Inline(document []byte) string { return dataurl.EncodeBytes(document) }

// PackedOverlay is a machine's own Ignition as Boot carries it: a data URL of a gzip file, or for spec 3.0 of the document.
type PackedOverlay string

// PackOverlay packs a machine's own Ignition for a host that reads a spec version, which is most of the work of a Boot. It fails
// when the overlay is no Ignition, and with a *VersionError when that version can't say it.
func PackOverlay(overlay []byte, version string) (PackedOverlay, error) {
	config, err := selfContained(overlay)
	if err != nil {
		return "", fmt.Errorf("the machine's overlay: %w", err)
	}
	whole, err := WriteAs(config, version)
	if err != nil {
		return "", err
	}
	if !ReadsReferences(version) {
		return PackedOverlay(Inline(whole)), nil
	}
	source, err := packed(whole)
	return PackedOverlay(source), err
}

// Marshal writes the answer.
func (b Boot) Marshal() ([]byte, error) {
	overlay, hash := string(b.Overlay), sha512Prefix+b.PoolSHA512
	entries := []types.Resource{{Source: &b.PoolURL, Verification: types.Verification{Hash: &hash}}, {Source: &overlay}}
	version := versionWithoutHeaders
	if ReadsReferences(b.Version) {
		version = pointerVersion
		compression := gzipCompression
		entries[0].HTTPHeaders = bearer(b.Token)
		entries[0].Compression, entries[1].Compression = &compression, &compression
	}
	return canonical(types.Config{Ignition: types.Ignition{Version: version, Config: types.IgnitionConfig{Merge: entries}}})
}

// selfContained makes the contents of every file say how they are packed and what their hash is. On the host it is
// Ignition's merge that lays the overlay over the pool, and what the overlay does not say it would take from a pool's file of
// the same path (see Merge).
func selfContained(overlay []byte) (Config, error) {
	config, err := Parse(overlay)
	if err != nil {
		return Config{}, err
	}
	for i := range config.Storage.Files {
		contents := &config.Storage.Files[i].Contents
		if contents.Source == nil {
			continue
		}
		if contents.Compression == nil {
			none := ""
			contents.Compression = &none
		}
		if contents.Verification.Hash == nil {
			data, err := contentsOf(*contents, maxUnpacked)
			if errors.Is(err, errRemote) {
				continue
			}
			if err != nil {
				return Config{}, fmt.Errorf("%s: %w", config.Storage.Files[i].Path, err)
			}
			sum := sha512.Sum512(data)
			hash := sha512Prefix + hex.EncodeToString(sum[:])
			contents.Verification.Hash = &hash
		}
	}
	return config, nil
}

// packers are used again: one takes nearly a megabyte.
var packers = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// packed is a data URL of the gzip file of data.
func packed(data []byte) (string, error) {
	var file bytes.Buffer
	writer := packers.Get().(*gzip.Writer)
	defer packers.Put(writer)
	writer.Reset(&file)
	if _, err := writer.Write(data); err != nil {
		return "", err
	}
	if err := writer.Close(); err != nil {
		return "", err
	}
	return dataurl.EncodeBytes(file.Bytes()), nil
}
