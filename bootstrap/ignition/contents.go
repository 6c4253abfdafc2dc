package ignition

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/vincent-petithory/dataurl"
	"k8s.io/utils/ptr"
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

// commonMediaTypes are the common texts between "data:" and the comma. The value is true if base64 follows.
var commonMediaTypes = map[string]bool{
	"": false, "text/plain": false, "text/plain;charset=utf-8": false, "text/plain;charset=us-ascii": false,
	";base64": true, "text/plain;base64": true, "text/plain;charset=utf-8;base64": true, "text/plain;charset=us-ascii;base64": true,
}

// decodeCommonDataURL decodes a data URL of a common form, and reports whether it has such a form. Most contents that a
// pool renders have one. Package dataurl, which Ignition uses, returns the same bytes but is slow: it sends every rune
// through a channel.
func decodeCommonDataURL(source string) ([]byte, bool) {
	rest, isData := strings.CutPrefix(source, "data:")
	head, body, _ := strings.Cut(rest, ",")
	packed, isPlain := commonMediaTypes[head]
	switch {
	case !isData || !isPlain || len(rest) == len(head):
		return nil, false
	case packed:
		// DecodeString ignores line breaks, which a URL must not have.
		data, err := base64.StdEncoding.DecodeString(body)
		return data, err == nil && strings.IndexByte(body, '\n') < 0 && strings.IndexByte(body, '\r') < 0
	}
	for i := range len(body) {
		if c := body[i]; c <= ' ' || c > '~' || strings.IndexByte("\"#<>?[\\]^`{|}", c) >= 0 {
			return nil, false
		}
	}
	text, err := url.PathUnescape(body)
	return []byte(text), err == nil
}

// isCommonDataURL reports whether decodeCommonDataURL decodes a URL.
func isCommonDataURL(source string) bool {
	rest, isData := strings.CutPrefix(source, "data:")
	head, body, hasBody := strings.Cut(rest, ",")
	if !isData || !hasBody || !commonMediaTypes[head] {
		_, isPlain := decodeCommonDataURL(source)
		return isPlain
	}
	digits := strings.TrimSuffix(strings.TrimSuffix(body, "="), "=")
	for i := range len(digits) {
		if !isBase64[digits[i]] {
			return false
		}
	}
	return len(body)%4 == 0
}

// isBase64 has for each byte whether it is a digit of base64.
var isBase64 = func() (bytes [256]bool) {
	for c := range bytes {
		bytes[c] = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '+' || c == '/'
	}
	return bytes
}()

// decodeDataURL decodes a data URL as Ignition does. For any other URL it returns errRemote.
func decodeDataURL(source string) ([]byte, error) {
	if data, isPlain := decodeCommonDataURL(source); isPlain {
		return data, nil
	}
	parsed, err := url.Parse(source)
	if err != nil {
		return nil, err
	}
	if parsed.Scheme != "data" {
		return nil, errRemote
	}
	decoded, err := dataurl.DecodeString(parsed.String())
	if err != nil {
		return nil, err
	}
	return decoded.Data, nil
}

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
