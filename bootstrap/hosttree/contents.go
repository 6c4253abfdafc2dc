package hosttree

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/utils/ptr"

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
	return contents, verify(contents, ptr.Deref(resource.Verification.Hash, ""))
}

var errHash = errors.New("its contents don't have the hash in verification.hash: correct one of them")

// verify compares contents with a hash of the form sha512-<hex> or sha256-<hex>, or with none.
func verify(contents []byte, want string) error {
	algorithm, sum, _ := strings.Cut(want, "-")
	var got string
	switch algorithm {
	case "":
		return nil
	case "sha512":
		hash := sha512.Sum512(contents)
		got = hex.EncodeToString(hash[:])
	case "sha256":
		hash := sha256.Sum256(contents)
		got = hex.EncodeToString(hash[:])
	default:
		return fmt.Errorf("verification.hash has the unknown algorithm %q: use sha512 or sha256", algorithm)
	}
	if !strings.EqualFold(got, sum) {
		return errHash
	}
	return nil
}
