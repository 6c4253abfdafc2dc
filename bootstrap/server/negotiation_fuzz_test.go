package server

import (
	"net/http"
	"strings"
	"testing"
)

// FuzzAccept verifies that every Accept header results in either a version or an error, and in a version only if it
// names Ignition or accepts all types.
func FuzzAccept(f *testing.F) {
	for _, seed := range []string{"", "*/*", "application/vnd.coreos.ignition+json;version=3.6.0, */*;q=0.1", "application/vnd.coreos.ignition+json;version=2.4.0", "a/b;version=3.1.0;q=0", ",;=\"", "application/vnd.coreos.ignition+json;version=\"3.2\";q=.5"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, accept string) {
		version, err := versionFor(&http.Request{Header: http.Header{"Accept": {accept}}})
		if (err == nil) != (version != "") {
			t.Errorf("%q: %q, %v", accept, version, err)
		}
		if err == nil && !strings.Contains(accept, "*") && !strings.Contains(strings.ToLower(accept), "ignition") {
			t.Errorf("%q names nothing of ours, and is answered in %s", accept, version)
		}
	})
}
