package staticpods

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
)

// maxRedirects is the maximum number of redirects that a probe follows, as the kubelet's.
const maxRedirects = 10

// client sends probes as the kubelet does: without a proxy, without credentials, and without verifying the server,
// whose certificate need not be for the address. It follows redirects to the same host only. Another one passes.
var client = &http.Client{
	Transport: &http.Transport{
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // it proves that something answers, and trusts nothing
		TLSNextProto:    map[string]func(string, *tls.Conn) http.RoundTripper{},
	},
	CheckRedirect: func(request *http.Request, via []*http.Request) error {
		switch {
		case request.URL.Hostname() != via[0].URL.Hostname():
			return http.ErrUseLastResponse
		case len(via) >= maxRedirects:
			return fmt.Errorf("it was redirected %d times", maxRedirects)
		}
		return nil
	},
}

// statusError is an answer that does not pass.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("%d %s", int(e), http.StatusText(int(e))) }

// send returns nil if the probe passes at one of the addresses of the host that it is for. Otherwise, an answer says
// more than that nothing listens at another address.
func (p *probe) send(ctx context.Context) error {
	addresses, why := p.addresses()
	for _, address := range addresses {
		err := p.sendTo(ctx, address)
		if err == nil {
			return nil
		}
		if _, isAnswer := errors.AsType[statusError](err); why == nil || isAnswer {
			why = err
		}
	}
	return why
}

// sendTo returns nil if the probe passes at an address. The body of the answer is not read.
func (p *probe) sendTo(ctx context.Context, address string) error {
	limited, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(limited, http.MethodGet, p.at(address).String(), http.NoBody)
	if err != nil {
		return errors.New("the probe is not valid")
	}
	request.Header = p.header.Clone()
	request.Host = p.header.Get("Host")
	for name, value := range map[string]string{"User-Agent": "kube-probe/poolboot", "Accept": "*/*"} {
		if _, isSet := request.Header[name]; !isSet {
			request.Header.Set(name, value)
		}
	}
	response, err := client.Do(request)
	if err != nil {
		if withURL, ok := errors.AsType[*url.Error](err); ok {
			err = withURL.Err
		}
		if ofNetwork, ok := errors.AsType[*net.OpError](err); ok { // its text has a port that is another one each time
			err = ofNetwork.Err
		}
		return err
	}
	_ = response.Body.Close()
	if response.StatusCode < http.StatusOK || response.StatusCode >= http.StatusBadRequest {
		return statusError(response.StatusCode)
	}
	return nil
}

// addresses returns the addresses of this host that the probe is for. A probe of another host says nothing about this
// one. Without a host, it is for the address of the Node, which can be any, so that of the default route is tried after
// those that every host has.
func (p *probe) addresses() ([]string, error) {
	switch p.host {
	case "localhost":
		return []string{"127.0.0.1", "::1"}, nil
	case "":
		return append([]string{"127.0.0.1", "::1"}, outgoing()...), nil
	}
	address, err := netip.ParseAddr(p.host)
	if err == nil && (address.IsLoopback() || isLocal(address)) {
		return []string{p.host}, nil
	}
	return nil, errors.New("it is no address of this host")
}

// isLocal reports whether an interface of the host has an address.
func isLocal(address netip.Addr) bool {
	all, err := net.InterfaceAddrs()
	for _, one := range all {
		prefix, errPrefix := netip.ParsePrefix(one.String())
		if err == nil && errPrefix == nil && prefix.Addr().WithZone("") == address.Unmap().WithZone("") {
			return true
		}
	}
	return false
}

// outgoing returns the addresses from which the host sends by default. Nothing is sent: the destinations are those of
// documentation (RFC 5737, RFC 3849).
func outgoing() (addresses []string) {
	for _, destination := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} {
		connection, err := net.Dial("udp", destination)
		if err != nil {
			continue // it has no such route
		}
		if local, ok := connection.LocalAddr().(*net.UDPAddr); ok {
			addresses = append(addresses, local.IP.String())
		}
		_ = connection.Close()
	}
	return addresses
}
