package ignition

import (
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/vincent-petithory/dataurl"
)

const (
	gzipCompression = "gzip"
	sha512Prefix    = "sha512-"
)

// Boot is the config server's answer to a host that follows its pointer: the pool's configuration, then the machine's
// overlay, which takes precedence. It has spec version 3.1, or 3.0 for a host that reads no later version.
//
// The encoding of the pool's bytes follows Ignition's source (v2.27.0, internal/resource/url.go and
// internal/exec/config_fetcher.go). Ignition requests "Accept-Encoding: identity" and decodes no Content-Encoding. It
// decompresses the body if the merge entry has "compression: gzip", and then verifies the decompressed bytes. So the
// server sends a gzip file as the body, without Content-Encoding, and PoolSHA512 is the hash of the uncompressed bytes.
//
// References of spec 3.0 have no token and no compression, so with 3.0 the answer contains both parts, uncompressed.
type Boot struct {
	// Version is the spec version that the host reads, one of VersionsWritten. If it is empty, it is the constant
	// Version.
	Version string
	// PoolURL is the URL of the pool's configuration as a gzip file. For spec 3.0 it is the result of DataURL.
	PoolURL string
	// PoolSHA512 is the SHA-512 of the pool's configuration before compression, in hex.
	PoolSHA512 string
	// Token is the machine's bearer token. The request for the pool's configuration needs it too.
	Token string
	// ReportsJoin is true for a host that gets its token in the file ReportHeaderPath, unless it reads spec 3.0 only.
	ReportsJoin bool
	// Overlay is the machine's own Ignition. It holds its join credential.
	Overlay PackedOverlay
}

// SupportsReferences reports whether a host that reads a spec version can send its token to a URL in a reference.
func SupportsReferences(version string) bool { return version != versionWithoutHeaders }

// DataURL returns a data URL with the document.
func DataURL(document []byte) string { return dataurl.EncodeBytes(document) }

// PackedOverlay is a machine's overlay as it is stored and as Boot contains it: a data URL of a gzip file whose media
// type has the spec version as a parameter. For spec 3.0 it is a data URL of the uncompressed document.
type PackedOverlay string

// The parts of a PackedOverlay before and after the spec version.
const (
	beforeVersion = "data:application/gzip;spec="
	afterVersion  = ";base64,"
)

var errNotPacked = errors.New("the machine's overlay is malformed")

// PackOverlay encodes a machine's overlay, so that Boot.Marshal only concatenates strings. It uses the oldest spec
// version that can express the overlay, so that the result serves every host that reads that version or a later one.
func PackOverlay(overlay Config) (PackedOverlay, error) {
	if err := makeSelfContained(&overlay); err != nil {
		return "", fmt.Errorf("the machine's overlay: %w", err)
	}
	var whole []byte
	var err error
	for _, version := range VersionsWritten {
		if !SupportsReferences(version) {
			continue
		}
		whole, err = WriteAs(overlay, version)
		if older := (*VersionError)(nil); errors.As(err, &older) {
			continue
		}
		if err != nil {
			return "", err
		}
		return packDocument(whole, version)
	}
	return "", err
}

// ForVersion returns the overlay for a host that reads a spec version, in most cases unchanged. If that version can't
// express it, the error is a *VersionError. No error quotes the overlay.
func (p PackedOverlay) ForVersion(version string) (PackedOverlay, error) {
	head, isPacked := strings.CutPrefix(string(p), beforeVersion)
	written, _, _ := strings.Cut(head, afterVersion)
	oldest := slices.Index(VersionsWritten, written)
	if !isPacked || oldest < 0 {
		return "", errNotPacked
	}
	if SupportsReferences(version) && oldest <= slices.Index(VersionsWritten, version) {
		return p, nil
	}
	raw, err := p.Unpack()
	if err != nil {
		return "", err
	}
	overlay, err := Parse(raw)
	if err != nil {
		return "", errors.New("the machine's overlay is not valid Ignition") // not wrapped: the error can quote the overlay
	}
	whole, err := WriteAs(overlay, version)
	if err != nil || SupportsReferences(version) {
		return "", err
	}
	return PackedOverlay(DataURL(whole)), nil
}

// Unpack returns the Ignition that PackOverlay encoded.
func (p PackedOverlay) Unpack() ([]byte, error) {
	_, body, _ := strings.Cut(string(p), afterVersion)
	file, err := base64.StdEncoding.DecodeString(body)
	if err != nil {
		return nil, errNotPacked
	}
	return gunzip(file, maxUnpackedBytes)
}

// The text around the parts of a Boot, in canonical form. For spec 3.0 it lacks the fields that references of 3.0 do
// not have.
const (
	bootPrefix    = `{"ignition":{"config":{"merge":[{`
	beforeToken   = `"compression":"gzip","httpHeaders":[{"name":"Authorization","value":"Bearer `
	afterToken    = `"}],`
	beforePoolURL = `"source":"`
	beforeHash    = `","verification":{"hash":"sha512-`
	afterHash     = `"}},{`
	beforeSource  = `"compression":"gzip",`
	beforeOverlay = `"source":"`
	afterOverlay  = `"}]},"version":"`
	bootSuffix    = `"}}`
	beforeHeader  = `"},"storage":{"files":[{"contents":{"source":"data:,Authorization:%20Bearer%20`
	afterHeader   = `%0A"},"mode":384,"overwrite":true,"path":"` + ReportHeaderPath + `"}]}}`
)

// Marshal writes the answer. It concatenates strings instead of encoding a structure, because every boot needs one.
func (b Boot) Marshal() []byte {
	const around = len(bootPrefix + beforeToken + afterToken + beforePoolURL + beforeHash + afterHash + beforeSource + beforeOverlay + afterOverlay + pointerVersion + beforeHeader + afterHeader)
	out := append(make([]byte, 0, around+2*len(b.Token)+len(b.PoolURL)+len(b.PoolSHA512)+len(b.Overlay)), bootPrefix...)
	version, references := versionWithoutHeaders, SupportsReferences(b.Version)
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
	out = append(out, version...)
	if !b.ReportsJoin || !references {
		return append(out, bootSuffix...)
	}
	return append(append(append(out, beforeHeader...), url.PathEscape(b.Token)...), afterHeader...)
}

// makeSelfContained sets the compression and the hash of the contents of every file. On the host Ignition itself merges
// the overlay over the pool's configuration, and it would take fields that the overlay does not set from the pool's
// file of the same path (see Merge).
func makeSelfContained(overlay *Config) error {
	overlay.Storage.Files = slices.Clone(overlay.Storage.Files)
	for i := range overlay.Storage.Files {
		contents := &overlay.Storage.Files[i].Contents
		if contents.Source == nil {
			continue
		}
		if contents.Compression == nil {
			contents.Compression = new("")
		}
		if contents.Verification.Hash == nil {
			data, err := Contents(*contents, maxUnpackedBytes)
			if errors.Is(err, errRemote) {
				continue
			}
			if err != nil {
				return fmt.Errorf("%s: %w", overlay.Storage.Files[i].Path, err)
			}
			sum := sha512.Sum512(data)
			contents.Verification.Hash = new(sha512Prefix + hex.EncodeToString(sum[:]))
		}
	}
	return nil
}

// gzipWriters is a pool because a gzip.Writer takes nearly a megabyte.
var gzipWriters = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// packDocument encodes a document of a spec version.
func packDocument(document []byte, version string) (PackedOverlay, error) {
	var file bytes.Buffer
	writer := gzipWriters.Get().(*gzip.Writer)
	defer gzipWriters.Put(writer)
	writer.Reset(&file)
	if _, err := writer.Write(document); err != nil {
		return "", err
	}
	if err := writer.Close(); err != nil {
		return "", err
	}
	return PackedOverlay(beforeVersion + version + afterVersion + base64.StdEncoding.EncodeToString(file.Bytes())), nil
}
