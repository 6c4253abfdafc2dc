package update

import (
	"errors"
	"fmt"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// maxContents is the maximum size of the contents of a file, decompressed.
const maxContents = 64 << 20

// Contents are the contents of a file.
type Contents struct {
	// Data are the decoded and decompressed bytes. They can be secret.
	Data []byte `json:"data,omitempty"`
	// Remote is set instead for contents from a URL. It has a hash.
	Remote *types.Resource `json:"remote,omitempty"`
}

var errNoHash = errors.New("its contents are from a URL and have no verification.hash, so another host could get other contents")

// decode returns the contents of a file, nil for a file without contents.
func decode(resource types.Resource) (*Contents, error) {
	if resource.Source == nil {
		return nil, nil
	}
	data, err := ignition.Contents(resource, maxContents)
	switch {
	case ignition.IsRemote(err) && resource.Verification.Hash == nil:
		return nil, errNoHash
	case ignition.IsRemote(err):
		return &Contents{Remote: &resource}, nil
	case err != nil:
		return nil, fmt.Errorf("its contents can't be read: %w", err)
	}
	return &Contents{Data: data}, nil
}
