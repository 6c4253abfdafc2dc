// Package faults stands between programs and the API server or the config server that they talk to, and makes the way
// as bad as a test wants it. It knows nothing of Poolboot.
package faults

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/loopback"
)

// Faults are what happens to requests. Shares are between 0 and 1. The zero value is a way without faults.
type Faults struct {
	// Delay is how long a request waits before it goes on, at most.
	Delay time.Duration
	// Dropped is the share of requests whose connection is closed: one half of them before the API server sees the
	// request, the other before the client sees what became of it.
	Dropped float64
	// Errors is the share of requests that are answered 500.
	Errors float64
	// Expired is the share of watches that are answered 410 Gone, as when the API server does not have the versions any
	// more.
	Expired float64
	// WatchLife is how long a watch goes well, at most; 0: for ever.
	WatchLife time.Duration
	// Partition lets nothing through: what is under way is cut off, and what comes hangs until the partition ends.
	Partition bool
	// NoWatches cuts off watches and holds new ones back; everything else passes. So caches are behind, and live reads
	// are not.
	NoWatches bool
}

// holds says whether a request does not get through.
func (f Faults) holds(isWatch bool) bool { return f.Partition || isWatch && f.NoWatches }

// Proxy is a way to an API server.
type Proxy struct {
	// Server is the proxy's URL.
	Server string

	http    *http.Server
	reverse *httputil.ReverseProxy

	mu      sync.Mutex
	faults  Faults
	changed chan struct{} // closed when the faults are others
	counts  map[string]int
}

// Start starts a proxy to the API server that config reaches. What a client says of itself goes along (its token), and
// config's own client certificate, if it has one. The proxy shows a certificate that vouches for it: one of an
// authority that the clients trust.
func Start(config *rest.Config, certificate loopback.Pair) (*Proxy, error) {
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate.Cert, certificate.Key)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", loopback.Address(0))
	if err != nil {
		return nil, err
	}
	silent := log.New(io.Discard, "", 0) // broken connections are what it is for
	p := &Proxy{Server: "https://" + listener.Addr().String(), changed: make(chan struct{}), counts: map[string]int{}}
	p.reverse = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // watches
		ErrorLog:      silent,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ModifyResponse: func(r *http.Response) error {
			if lost, _ := r.Request.Context().Value(answerLost{}).(bool); lost {
				return errors.New("lost")
			}
			return nil
		},
	}
	p.http = &http.Server{Handler: p, ErrorLog: silent, ReadHeaderTimeout: time.Minute}
	// HTTP/1.1 only: in HTTP/2 one connection carries all requests, so one fault would hit every one of them.
	go func() {
		_ = p.http.Serve(tls.NewListener(listener, &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, Certificates: []tls.Certificate{pair}}))
	}()
	return p, nil
}

// answerLost marks the context of a request whose answer is not to come back.
type answerLost struct{}

// Set changes the faults.
func (p *Proxy) Set(f Faults) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = f
	close(p.changed)
	p.changed = make(chan struct{})
}

// Counts are how many requests passed, and how many each fault has hit.
func (p *Proxy) Counts() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprint(p.counts)
}

// Stop ends the proxy.
func (p *Proxy) Stop() error { return p.http.Close() }

func (p *Proxy) now() (Faults, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults, p.changed
}

func (p *Proxy) count(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[what]++
}

// ServeHTTP lets a request through, or lets a fault befall it.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	faults, changed := p.now()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	isWatch := r.URL.Query().Get("watch") != ""
	chance := rand.Float64()
	switch {
	case faults.holds(isWatch):
		p.count("hung")
		_, _ = io.Copy(io.Discard, r.Body) // only then is it noticed that the client gives up
		select {
		case <-changed:
		case <-ctx.Done():
		}
		panic(http.ErrAbortHandler)
	case isWatch && chance < faults.Expired:
		p.count("expired")
		answer(w, http.StatusGone, "Expired")
		return
	case !isWatch && chance < faults.Errors:
		p.count("500")
		answer(w, http.StatusInternalServerError, "InternalError")
		return
	case !isWatch && chance < faults.Errors+faults.Dropped/2:
		p.count("dropped")
		panic(http.ErrAbortHandler)
	case !isWatch && chance < faults.Errors+faults.Dropped:
		p.count("answer lost")
		ctx = context.WithValue(ctx, answerLost{}, true)
	}
	if faults.Delay > 0 {
		select {
		case <-time.After(rand.N(faults.Delay)):
		case <-ctx.Done():
			return
		}
	}
	if isWatch && faults.WatchLife > 0 {
		defer time.AfterFunc(rand.N(faults.WatchLife), cancel).Stop()
	}
	go func() { // a partition cuts off what is under way
		for {
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
			if faults, changed = p.now(); faults.holds(isWatch) {
				cancel()
			}
		}
	}()
	p.count("passed")
	p.reverse.ServeHTTP(w, r.WithContext(ctx))
}

// answer answers as an API server does that fails.
func answer(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":"a fault of the test"}`, reason, code)
}
