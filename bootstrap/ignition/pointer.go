package ignition

import (
	"bytes"
	"encoding/pem"
	"errors"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_1/types"
	"github.com/vincent-petithory/dataurl"
)

// pointerVersion is the spec version of the pointer and of the config server's answer: the oldest with HTTP headers and
// verification on merge entries.
const pointerVersion = "3.1.0"

const (
	authorizationHeader = "Authorization"
	bearerPrefix        = "Bearer "
)

// Pointer is the content of a host's user data: the URL of the configuration, and the token that authenticates the
// host.
type Pointer struct {
	// URL is the machine's URL on the config server.
	URL string
	// Token is the machine's bearer token.
	Token string
	// CA is the certificate authorities that verify the config server's certificate: one or several, in PEM. If it is
	// empty, those of the operating system apply.
	CA []byte
}

// Marshal writes the pointer as Ignition of spec 3.1.
func (p Pointer) Marshal() ([]byte, error) {
	authorities, err := authoritiesIn(p.CA)
	if err != nil {
		return nil, err
	}
	return marshalCanonical(types.Config{Ignition: types.Ignition{
		Version: pointerVersion,
		Config: types.IgnitionConfig{Merge: []types.Resource{{
			Source:      &p.URL,
			HTTPHeaders: types.HTTPHeaders{{Name: authorizationHeader, Value: new(bearerPrefix + p.Token)}},
		}}},
		Security: types.Security{TLS: types.TLS{CertificateAuthorities: authorities}},
	}})
}

// authoritiesIn returns one entry for each certificate, without duplicates: older releases of Ignition read only the
// first certificate of an entry, and all releases refuse duplicate entries.
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

// ParsePointer reads what Pointer.Marshal wrote.
func ParsePointer(raw []byte) (Pointer, error) {
	config, err := Parse(raw)
	if err != nil {
		return Pointer{}, err
	}
	entries := config.Ignition.Config.Merge
	if len(entries) != 1 || entries[0].Source == nil {
		return Pointer{}, newParseError("ignition.config.merge", "this is not a pointer: it must have one entry, with a source")
	}
	pointer := Pointer{URL: *entries[0].Source}
	for _, header := range entries[0].HTTPHeaders {
		if header.Name == authorizationHeader && header.Value != nil {
			pointer.Token, _ = strings.CutPrefix(*header.Value, bearerPrefix)
		}
	}
	if pointer.Token == "" {
		return Pointer{}, newParseError("ignition.config.merge[0].httpHeaders", "this is not a pointer: it has no bearer token")
	}
	for _, authority := range config.Ignition.Security.TLS.CertificateAuthorities {
		if authority.Source == nil {
			continue
		}
		decoded, err := dataurl.DecodeString(*authority.Source)
		if err != nil {
			return Pointer{}, newParseError("ignition.security.tls.certificateAuthorities", err.Error())
		}
		pointer.CA = append(pointer.CA, decoded.Data...)
	}
	return pointer, nil
}
