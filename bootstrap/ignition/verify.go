package ignition

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/utils/ptr"
)

// errHash is the error for contents that don't have the hash in the document.
var errHash = errors.New("the contents, after decompression, don't have the hash in verification.hash: " +
	"correct the contents, or set sha512- and the output of sha512sum for them")

// Verify returns an error if the decompressed contents of a resource don't have its hash, if any: sha512-<hex> or
// sha256-<hex>. Like Ignition, it does not verify a resource with an empty source.
func Verify(contents []byte, resource types.Resource) error {
	hash := ptr.Deref(resource.Verification.Hash, "")
	if hash == "" || ptr.Deref(resource.Source, "") == "" {
		return nil
	}
	algorithm, want, _ := strings.Cut(hash, "-")
	var got string
	switch algorithm {
	case "sha512":
		sum := sha512.Sum512(contents)
		got = hex.EncodeToString(sum[:])
	case "sha256":
		sum := sha256.Sum256(contents)
		got = hex.EncodeToString(sum[:])
	default:
		return fmt.Errorf("verification.hash has the unknown algorithm %q: use sha512 or sha256", algorithm)
	}
	if !strings.EqualFold(got, want) {
		return errHash
	}
	return nil
}

// CheckContents returns a *ParseError with every resource whose contents Ignition would refuse on the host, so that the
// first boot would never end: a malformed gzip file, or contents with another hash. Guard includes this.
func CheckContents(c Config) error {
	g := guard{remainingBytes: maxUnpackedBytes}
	for i, resource := range c.Ignition.Config.Merge {
		g.verify(fmt.Sprintf("ignition.config.merge[%d]", i), "the configuration", resource)
	}
	g.verify("ignition.config.replace", "the configuration", c.Ignition.Config.Replace)
	g.checkKeys(c)
	for i, file := range c.Storage.Files {
		if isVerifiable(file.Contents) {
			g.verify(fmt.Sprintf("storage.files[%d].contents", i), file.Path, file.Contents)
		}
		for j, part := range file.Append {
			if isVerifiable(part) {
				g.verify(fmt.Sprintf("storage.files[%d].append[%d]", i, j), file.Path, part)
			}
		}
	}
	if len(g.refusals) == 0 {
		return nil
	}
	err := &ParseError{}
	for _, refused := range g.refusals {
		err.Problems = append(err.Problems, Problem{Path: refused.Path, Message: refused.Why})
	}
	return err
}

// isVerifiable reports whether there is more to check in contents than their URL.
func isVerifiable(resource types.Resource) bool {
	return resource.Verification.Hash != nil || ptr.Deref(resource.Compression, "") != ""
}

// checkKeys checks the contents of certificate authorities and of keys for disks.
func (g *guard) checkKeys(c Config) {
	for i, authority := range c.Ignition.Security.TLS.CertificateAuthorities {
		g.verify(fmt.Sprintf("ignition.security.tls.certificateAuthorities[%d]", i), "the certificate authority", authority)
	}
	for i, luks := range c.Storage.Luks {
		g.verify(fmt.Sprintf("storage.luks[%d].keyFile", i), "the key", luks.KeyFile)
	}
}

// verify refuses a resource that a host would refuse.
func (g *guard) verify(place, name string, resource types.Resource) {
	_, _ = g.readContents(place, name, resource)
}

// readContents returns the contents of a resource, and refuses those that a host would refuse. The error is that of
// Contents; contents at another URL are not refused.
func (g *guard) readContents(place, name string, resource types.Resource) ([]byte, error) {
	data, err := Contents(resource, g.remainingBytes)
	if err != nil {
		if !IsRemote(err) {
			g.refuse(place, "%s: %v", name, err)
		}
		return nil, err
	}
	g.remainingBytes -= int64(len(data))
	if err := Verify(data, resource); err != nil {
		g.refuse(place+".verification.hash", "%s: %v", name, err)
	}
	return data, nil
}
