package staticpods

import (
	"net/http"
	"testing"
)

// FuzzParse verifies that every probe of a manifest is a request to the address for which it is built, whatever the
// manifest says, and that their number and times are limited.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		podWith(get("readiness", "scheme: HTTPS, host: 10.0.0.1, port: 6443, path: /readyz")),
		podWith("ports: [{name: a, containerPort: 1}]", get("startup", "port: a, path: '//user:pass@host/b?c#d', httpHeaders: [{name: Host, value: e}]")),
		podWith("readinessProbe: {timeoutSeconds: -1, httpGet: {port: '0x10', path: 'mailto:a', host: '[::1]'}}"),
		podWith(get("liveness", "port: 8080, path: '%zz'"), "a: &a [*a]"),
		`{"kind":"Pod","spec":{"hostNetwork":true,"containers":[{"readinessProbe":{"httpGet":{"port":1e3}}}]}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		probes, err := parse(raw)
		if err != nil && len(probes) > 0 || len(probes) > maxProbes {
			t.Fatalf("%d probes, and %v", len(probes), err)
		}
		for _, p := range probes {
			at := p.at("127.0.0.1")
			request, err := http.NewRequest(http.MethodGet, at.String(), http.NoBody)
			if err != nil {
				continue // it is not sent
			}
			if u := request.URL; u.Scheme != "http" && u.Scheme != "https" || u.Host != "127.0.0.1:"+p.port || u.User != nil || u.Opaque != "" {
				t.Fatalf("%q leads to %q", raw, u)
			}
			if p.timeout <= 0 || p.timeout > maxTimeout {
				t.Fatalf("%q may take %s", raw, p.timeout)
			}
			_ = p.String()
		}
	})
}
