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
	// errRemote is the error for contents that are not in the document.
	errRemote = errors.New("the contents are at another URL and can't be checked: write them into the document")
	// errTooLarge is the error for contents that are larger than the limit.
	errTooLarge = errors.New("the contents are too large to be checked after decompression: make them smaller")
)

// IsRemote reports whether an error of Contents means that the contents are at another URL.
func IsRemote(err error) bool { return errors.Is(err, errRemote) }

// Contents returns the decompressed contents of a resource. It returns errTooLarge if they are larger than limit bytes,
// and errRemote if they are at another URL.
func Contents(resource types.Resource, limit int64) ([]byte, error) {
	if resource.Source == nil || *resource.Source == "" {
		return nil, nil
	}
	packed, err := decodeDataURL(*resource.Source)
	if err != nil {
		return nil, err
	}
	if resource.Compression == nil || *resource.Compression != gzipCompression {
		if int64(len(packed)) > limit {
			return nil, errTooLarge
		}
		return packed, nil
	}
	return gunzip(packed, limit)
}

// gunzip decompresses a gzip file of at most limit decompressed bytes.
func gunzip(packed []byte, limit int64) ([]byte, error) {
	file, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("compression is gzip, but the contents are not a gzip file: compress them, or remove compression (%w)", err)
	}
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the contents are a malformed gzip file: compress them again (%w)", err)
	case int64(len(data)) > limit:
		return nil, errTooLarge
	}
	return data, nil
}
