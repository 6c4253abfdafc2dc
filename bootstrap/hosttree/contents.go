package hosttree

import (
	"github.com/coreos/ignition/v2/config/v3_5/types"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// maxContents is the maximum size of the contents of a file, decompressed.
const maxContents = 64 << 20

// decode returns the contents of a file, nil if it keeps those that it has.
func (e Entry) decode(fetch func(types.Resource) ([]byte, error)) ([]byte, error) {
	if e.Sources == nil {
		return e.Contents, nil
	}
	contents := []byte{}
	for _, source := range e.Sources {
		part, err := Decode(source, fetch)
		if err != nil {
			return nil, err
		}
		contents = append(contents, part...)
	}
	return contents, nil
}

// Decode returns the contents of a resource after it verified them. If they are not in the document, it fetches them,
// or returns an error for which ignition.IsRemote is true if fetch is nil.
func Decode(resource types.Resource, fetch func(types.Resource) ([]byte, error)) ([]byte, error) {
	contents, err := ignition.Contents(resource, maxContents)
	if ignition.IsRemote(err) && fetch != nil {
		contents, err = fetch(resource)
	}
	if err != nil {
		return nil, err
	}
	return contents, ignition.Verify(contents, resource)
}
