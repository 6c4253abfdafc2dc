package poolbootconfig

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"path"
)

// newToken returns 256 random bits as the bearer token of one host.
func newToken() string {
	var bits [32]byte
	_, _ = rand.Read(bits[:]) // never fails: crypto/rand ends the process instead
	return base64.RawURLEncoding.EncodeToString(bits[:])
}

// tokenHash returns what is kept of a token outside the data Secret.
func tokenHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// pointerURL is where a host asks for its configuration. The role in it is for people to read.
func pointerURL(server, role, pointerID string) string {
	return server + "/config/" + url.PathEscape(role) + "/" + url.PathEscape(pointerID)
}

// pointerID returns the last part of a pointer's URL.
func pointerID(pointer string) (string, error) {
	u, err := url.Parse(pointer)
	if err != nil {
		return "", err
	}
	id := path.Base(u.Path)
	if id == "/" || id == "." {
		return "", fmt.Errorf("URL %q has no path", pointer)
	}
	return id, nil
}
