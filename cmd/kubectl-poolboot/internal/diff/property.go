package diff

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

const (
	// notShown replaces a value that may be secret.
	notShown = "(not shown)"
	// maxText is how many bytes of text are shown line by line.
	maxText = 16 << 10
	// maxContents is how many bytes of contents are decompressed for a comparison.
	maxContents = 16 << 20
)

// property is one property of an item.
type property struct {
	// value is what is compared.
	value string
	// shown is what is printed for it in one line.
	shown string
	// isText is true when the value is printed instead, line by line.
	isText bool
}

// properties are the properties of an item, by name.
type properties map[string]property

func newProperty(value string) property { return property{value: value, shown: value} }

// addSecret adds a value that is never shown.
func (p properties) addSecret(name string, value *string) {
	if value != nil {
		p[name] = property{value: *value, shown: notShown}
	}
}

// addText adds a text that every user on the host can read.
func (p properties) addText(name string, value *string) {
	if value != nil {
		p[name] = newContents(*value)
	}
}

// hide returns the properties without their values in the output.
func (p properties) hide() properties {
	for name, property := range p {
		property.shown, property.isText = notShown, false
		p[name] = property
	}
	return p
}

// addResource adds the contents of a file. Only the size of a secret is shown.
func (p properties) addResource(name string, resource types.Resource, isSecret bool) {
	if resource.Source == nil {
		return
	}
	data, err := ignition.Contents(resource, maxContents)
	switch {
	case err != nil:
		p[name] = newRemoteProperty(resource)
	case isSecret:
		p[name] = property{value: string(data), shown: fmt.Sprintf("%d bytes (not shown: the file is not world-readable)", len(data))}
	default:
		p[name] = newContents(string(data))
	}
}

// newContents returns a text that a terminal can show as lines, and other contents as size and hash.
func newContents(value string) property {
	isControl := func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }
	hash := sha256.Sum256([]byte(value))
	return property{
		value: value, shown: fmt.Sprintf("%d bytes, sha256 %x", len(value), hash[:6]),
		isText: len(value) <= maxText && utf8.ValidString(value) && !strings.ContainsFunc(value, isControl),
	}
}

// newRemoteProperty returns contents that are not in the document, as their URL without the parts that can contain
// credentials.
func newRemoteProperty(resource types.Resource) property {
	all, err := json.Marshal(resource)
	utilruntime.Must(err)
	shown := "contents that can't be decoded"
	if source, err := url.Parse(*resource.Source); err == nil && source.Scheme != "data" {
		shown = "from " + (&url.URL{Scheme: source.Scheme, Host: source.Host, Path: source.Path}).String()
		if hash := resource.Verification.Hash; hash != nil {
			shown += ", " + *hash
		}
	}
	return property{value: string(all), shown: shown}
}
