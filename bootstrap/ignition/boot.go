package ignition

import (
	"bytes"
	"compress/gzip"

	"github.com/coreos/ignition/v2/config/v3_1/types"
	"github.com/vincent-petithory/dataurl"
)

// Boot is the config server's answer to a host that follows its pointer: first the pool's configuration, then the
// machine's own part, which wins.
//
// How the pool's bytes travel was read in Ignition's source (internal/resource/url.go, internal/exec/config_fetcher.go of
// v2.27.0): Ignition asks with "Accept-Encoding: identity", so nothing undoes a Content-Encoding for certain. What
// undoes gzip is the entry's own "compression: gzip", and the entry's verification is then of the bytes that come out. So
// the server sends the gzip file as the body, without Content-Encoding, and PoolSHA512 is the hash of what was packed.
type Boot struct {
	// PoolURL is where the pool's configuration is, as a gzip file.
	PoolURL string
	// PoolSHA512 is the SHA-512 of the pool's configuration before compression, in hex.
	PoolSHA512 string
	// Token is the machine's bearer token; the pool's configuration is handed out against it too.
	Token string
	// Overlay is the machine's own Ignition. It holds its join credential.
	Overlay []byte
}

const gzipCompression = "gzip"

// Marshal writes the answer as Ignition of spec 3.1.
func (b Boot) Marshal() ([]byte, error) {
	overlay, err := packed(b.Overlay)
	if err != nil {
		return nil, err
	}
	compression, hash := gzipCompression, "sha512-"+b.PoolSHA512
	return canonical(types.Config{Ignition: types.Ignition{
		Version: pointerVersion,
		Config: types.IgnitionConfig{Merge: []types.Resource{
			{
				Source:       &b.PoolURL,
				Compression:  &compression,
				HTTPHeaders:  bearer(b.Token),
				Verification: types.Verification{Hash: &hash},
			},
			{
				Source:      &overlay,
				Compression: &compression,
			},
		}},
	}})
}

// packed is a data URL of the gzip file of data.
func packed(data []byte) (string, error) {
	var file bytes.Buffer
	writer := gzip.NewWriter(&file)
	if _, err := writer.Write(data); err != nil {
		return "", err
	}
	if err := writer.Close(); err != nil {
		return "", err
	}
	return dataurl.EncodeBytes(file.Bytes()), nil
}
