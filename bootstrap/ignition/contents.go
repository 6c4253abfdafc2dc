package ignition

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/coreos/ignition/v2/config/v3_5/types"
)

var (
	// errRemote says that contents are not in the document.
	errRemote = errors.New("the contents are somewhere else and can't be checked: write them into the document")
	// errTooLarge says that contents are larger than the reader was willing to unpack.
	errTooLarge = errors.New("the contents are too large to be checked once unpacked: make them smaller")
)

// Contents returns what a resource holds, unpacked, for somebody to read. It fails when that would have to be fetched,
// is broken, or is larger than limit, which is in bytes.
func Contents(resource types.Resource, limit int64) ([]byte, error) {
	return contentsOf(resource, limit)
}

// contentsOf returns what a resource holds, unpacked, at most limit bytes of it: errTooLarge beyond that, errRemote
// when it would have to be fetched.
func contentsOf(resource types.Resource, limit int64) ([]byte, error) {
	if resource.Source == nil || *resource.Source == "" {
		return nil, nil
	}
	packed, err := decode(*resource.Source)
	if err != nil {
		return nil, err
	}
	if resource.Compression == nil || *resource.Compression != gzipCompression {
		if int64(len(packed)) > limit {
			return nil, errTooLarge
		}
		return packed, nil
	}
	return unpacked(packed, limit)
}

// unpacked returns what a gzip file holds, at most limit bytes of it.
func unpacked(packed []byte, limit int64) ([]byte, error) {
	file, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("the contents are no gzip file, as compression says: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the contents are a broken gzip file: %w", err)
	case int64(len(data)) > limit:
		return nil, errTooLarge
	}
	return data, nil
}
