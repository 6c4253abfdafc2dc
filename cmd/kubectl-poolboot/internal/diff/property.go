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

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
)

const (
	// maxText is how many bytes of text are shown line by line.
	maxText = 16 << 10
	// maxContents is how many bytes of contents are unpacked for a comparison.
	maxContents = 16 << 20
)

// property is what an item says of one thing.
type property struct {
	// value is what is compared.
	value string
	// shown stands for it in one line.
	shown string
	// isText is true when value is shown instead, line by line.
	isText bool
}

// properties are those of an item, by their names.
type properties map[string]property

func plain(value string) property { return property{value: value, shown: value} }

// text adds a text that everybody on the host may read.
func (p properties) text(name string, value *string) {
	if value != nil {
		p[name] = contents(*value)
	}
}

// hidden returns the properties with nothing of their values to be shown.
func (p properties) hidden() properties {
	for name, property := range p {
		property.shown, property.isText = "(not shown)", false
		p[name] = property
	}
	return p
}

// resource adds the contents of a file. Of a secret only its size is shown.
func (p properties) resource(name string, resource types.Resource, isSecret bool) {
	if resource.Source == nil {
		return
	}
	data, err := ignition.Contents(resource, maxContents)
	switch {
	case err != nil:
		p[name] = elsewhere(resource)
	case isSecret:
		p[name] = property{value: string(data), shown: fmt.Sprintf("%d bytes (not shown: not everybody may read them)", len(data))}
	default:
		p[name] = contents(string(data))
	}
}

// contents is text where a terminal can show it, and else its size and hash.
func contents(value string) property {
	isControl := func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }
	return property{
		value: value, shown: summary(value),
		isText: len(value) <= maxText && utf8.ValidString(value) && !strings.ContainsFunc(value, isControl),
	}
}

func summary(value string) string {
	hash := sha256.Sum256([]byte(value))
	return fmt.Sprintf("%d bytes, sha256 %x", len(value), hash[:6])
}

// elsewhere is contents that are not in the document. Of the URL is shown what can hold no credential.
func elsewhere(resource types.Resource) property {
	all, err := json.Marshal(resource)
	cli.Must(err)
	shown := "what can't be unpacked here"
	if source, err := url.Parse(*resource.Source); err == nil && source.Scheme != "data" {
		shown = "from " + (&url.URL{Scheme: source.Scheme, Host: source.Host, Path: source.Path}).String()
		if hash := resource.Verification.Hash; hash != nil {
			shown += ", " + *hash
		}
	}
	return property{value: string(all), shown: shown}
}
