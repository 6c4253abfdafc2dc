package ignition

import (
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

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
// internal/exec/config_fetcher.go). Ignition asks with "Accept-Encoding: identity" and undoes no Content-Encoding. It
// undoes gzip when the merge entry says "compression: gzip", and the entry's verification is then of the bytes that
// come out. So the server sends a gzip file as the body, without Content-Encoding, and PoolSHA512 is the hash of what
// was packed.
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

// PackedOverlay is a machine's own Ignition as Boot carries it, and as it is stored: a data URL of a gzip file, whose
// head names the spec version; or for spec 3.0 a data URL of the document.
type PackedOverlay string

// What stands around the spec version and before the gzip file of a PackedOverlay.
const (
	beforeVersion = "data:application/gzip;spec="
	afterVersion  = ";base64,"
)

var errNotPacked = errors.New("the machine's overlay is not as it was packed")

// PackOverlay packs a machine's own Ignition, so that a Boot of it is no more than putting strings together. It is
// written in the oldest spec version that can say it, so that it is the same for every host that reads that or a newer
// one.
func PackOverlay(overlay Config) (PackedOverlay, error) {
	if err := selfContained(&overlay); err != nil {
		return "", fmt.Errorf("the machine's overlay: %w", err)
	}
	var whole []byte
	var err error
	for _, version := range VersionsWritten {
		if !ReadsReferences(version) {
			continue
		}
		whole, err = WriteAs(overlay, version)
		if older := (*VersionError)(nil); errors.As(err, &older) {
			continue
		}
		if err != nil {
			return "", err
		}
		return packed(whole, version)
	}
	return "", err
}

// For returns the overlay for a host that reads a spec version: most often as it is. It fails with a *VersionError when
// that version can't say it. Neither this nor any other error quotes the overlay.
func (p PackedOverlay) For(version string) (PackedOverlay, error) {
	head, isPacked := strings.CutPrefix(string(p), beforeVersion)
	written, _, _ := strings.Cut(head, afterVersion)
	oldest := slices.Index(VersionsWritten, written)
	if !isPacked || oldest < 0 {
		return "", errNotPacked
	}
	if ReadsReferences(version) && oldest <= slices.Index(VersionsWritten, version) {
		return p, nil
	}
	raw, err := p.Unpack()
	if err != nil {
		return "", err
	}
	overlay, err := Parse(raw)
	if err != nil {
		return "", errors.New("the machine's overlay is no valid Ignition") // not wrapped: it may quote it
	}
	whole, err := WriteAs(overlay, version)
	if err != nil || ReadsReferences(version) {
		return "", err
	}
	return PackedOverlay(Inline(whole)), nil
}

// Unpack returns the Ignition that PackOverlay packed.
func (p PackedOverlay) Unpack() ([]byte, error) {
	_, body, _ := strings.Cut(string(p), afterVersion)
	file, err := base64.StdEncoding.DecodeString(body)
	if err != nil {
		return nil, errNotPacked
	}
	return unpacked(file, maxUnpacked)
}

// What stands around the parts of a Boot, in canonical form; for spec 3.0 without what its references can't carry.
const (
	beginning     = `{"ignition":{"config":{"merge":[{`
	beforeToken   = `"compression":"gzip","httpHeaders":[{"name":"Authorization","value":"Bearer `
	afterToken    = `"}],`
	beforePoolURL = `"source":"`
	beforeHash    = `","verification":{"hash":"sha512-`
	afterHash     = `"}},{`
	beforeSource  = `"compression":"gzip",`
	beforeOverlay = `"source":"`
	afterOverlay  = `"}]},"version":"`
	end           = `"}}`
)

// Marshal writes the answer. Every host that boots asks for it, so it is put together, not encoded.
func (b Boot) Marshal() []byte {
	const around = len(beginning + beforeToken + afterToken + beforePoolURL + beforeHash + afterHash + beforeSource + beforeOverlay + afterOverlay + pointerVersion + end)
	out := append(make([]byte, 0, around+len(b.Token)+len(b.PoolURL)+len(b.PoolSHA512)+len(b.Overlay)), beginning...)
	version, references := versionWithoutHeaders, ReadsReferences(b.Version)
	if references {
		version = pointerVersion
		out = append(appendEscaped(append(out, beforeToken...), b.Token), afterToken...)
	}
	out = appendEscaped(append(out, beforePoolURL...), b.PoolURL)
	out = append(appendEscaped(append(out, beforeHash...), b.PoolSHA512), afterHash...)
	if references {
		out = append(out, beforeSource...)
	}
	out = append(appendEscaped(append(out, beforeOverlay...), string(b.Overlay)), afterOverlay...)
	return append(append(out, version...), end...)
}

// selfContained makes the contents of every file say how they are packed and what their hash is. On the host it is
// Ignition's merge that lays the overlay over the pool, and what the overlay does not say it would take from a pool's
// file of the same path (see Merge).
func selfContained(overlay *Config) error {
	overlay.Storage.Files = slices.Clone(overlay.Storage.Files)
	for i := range overlay.Storage.Files {
		contents := &overlay.Storage.Files[i].Contents
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
				return fmt.Errorf("%s: %w", overlay.Storage.Files[i].Path, err)
			}
			sum := sha512.Sum512(data)
			hash := sha512Prefix + hex.EncodeToString(sum[:])
			contents.Verification.Hash = &hash
		}
	}
	return nil
}

// packers are used again: one takes nearly a megabyte.
var packers = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// packed is an overlay that is written in a spec version.
func packed(document []byte, version string) (PackedOverlay, error) {
	var file bytes.Buffer
	writer := packers.Get().(*gzip.Writer)
	defer packers.Put(writer)
	writer.Reset(&file)
	if _, err := writer.Write(document); err != nil {
		return "", err
	}
	if err := writer.Close(); err != nil {
		return "", err
	}
	return PackedOverlay(beforeVersion + version + afterVersion + base64.StdEncoding.EncodeToString(file.Bytes())), nil
}
