package ignition

import (
	"bytes"
	"encoding/pem"
	"errors"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_1/types"
	"github.com/vincent-petithory/dataurl"
)

// pointerVersion is the spec version of what Poolboot itself tells a host before any of the user's configuration: the
// oldest that has HTTP headers and verification on merge entries.
const pointerVersion = "3.1.0"

const (
	authorizationHeader = "Authorization"
	bearerPrefix        = "Bearer "
)

// Pointer is what sits in a host's user data: where to get the configuration, and the token that says who asks.
type Pointer struct {
	// URL is the machine's address on the config server.
	URL string
	// Token is the machine's bearer token.
	Token string
	// CA is the certificate authorities that the config server's certificate is checked against: PEM, one or several.
	// Empty leaves it to those of the operating system.
	CA []byte
}

// Marshal writes the pointer as Ignition of spec 3.1.
func (p Pointer) Marshal() ([]byte, error) {
	authorities, err := authoritiesIn(p.CA)
	if err != nil {
		return nil, err
	}
	return canonical(types.Config{Ignition: types.Ignition{
		Version: pointerVersion,
		Config: types.IgnitionConfig{Merge: []types.Resource{{
			Source:      &p.URL,
			HTTPHeaders: bearer(p.Token),
		}}},
		Security: types.Security{TLS: types.TLS{CertificateAuthorities: authorities}},
	}})
}

// authoritiesIn makes one entry of every certificate, once: an older Ignition reads only the first certificate of an
// entry, and every Ignition refuses the same entry twice.
func authoritiesIn(bundle []byte) (authorities []types.Resource, err error) {
	seen := map[string]bool{}
	for rest := bundle; len(bytes.TrimSpace(rest)) > 0; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil || block.Type != "CERTIFICATE" {
			return nil, errors.New("the config server's CA must be certificates in PEM, and nothing else")
		}
		source := dataurl.EncodeBytes(pem.EncodeToMemory(block))
		if !seen[source] {
			seen[source] = true
			authorities = append(authorities, types.Resource{Source: &source})
		}
	}
	return authorities, nil
}

// bearer is the HTTP header that carries a token.
func bearer(token string) types.HTTPHeaders {
	value := bearerPrefix + token
	return types.HTTPHeaders{{Name: authorizationHeader, Value: &value}}
}

// ParsePointer reads what Pointer.Marshal wrote.
func ParsePointer(raw []byte) (Pointer, error) {
	config, err := Parse(raw)
	if err != nil {
		return Pointer{}, err
	}
	entries := config.Ignition.Config.Merge
	if len(entries) != 1 || entries[0].Source == nil {
		return Pointer{}, problem("ignition.config.merge", "this is no pointer: it must have one entry, with a source")
	}
	pointer := Pointer{URL: *entries[0].Source}
	for _, header := range entries[0].HTTPHeaders {
		if header.Name == authorizationHeader && header.Value != nil {
			pointer.Token, _ = strings.CutPrefix(*header.Value, bearerPrefix)
		}
	}
	if pointer.Token == "" {
		return Pointer{}, problem("ignition.config.merge[0].httpHeaders", "this is no pointer: it has no bearer token")
	}
	for _, authority := range config.Ignition.Security.TLS.CertificateAuthorities {
		if authority.Source == nil {
			continue
		}
		decoded, err := dataurl.DecodeString(*authority.Source)
		if err != nil {
			return Pointer{}, problem("ignition.security.tls.certificateAuthorities", err.Error())
		}
		pointer.CA = append(pointer.CA, decoded.Data...)
	}
	return pointer, nil
}
