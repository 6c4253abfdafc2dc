// Package faults has proxies for the API server and the config server that inject faults. It is independent of
// Poolboot.
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

// Faults are the faults of requests. Shares are between 0 and 1. The zero value has no faults.
type Faults struct {
	// Delay is the maximum delay of a request.
	Delay time.Duration
	// Dropped is the share of requests whose connection is closed: half of them before the API server gets the request,
	// the other half before the client gets the response.
	Dropped float64
	// Errors is the share of requests that are answered with 500.
	Errors float64
	// Expired is the share of watches that are answered with 410 Gone, as if their resource version were too old.
	Expired float64
	// WatchLife is the maximum duration of a watch. 0 is unlimited.
	WatchLife time.Duration
	// Partition blocks all requests: current ones are aborted, and new ones hang until the partition ends.
	Partition bool
	// NoWatches aborts watches and blocks new ones. Other requests pass. Therefore caches are stale, and live reads are
	// not.
	NoWatches bool
}

// blocks reports whether a request is blocked.
func (f Faults) blocks(isWatch bool) bool { return f.Partition || isWatch && f.NoWatches }

// Proxy is a proxy for an API server.
type Proxy struct {
	// Server is the proxy's URL.
	Server string

	http    *http.Server
	reverse *httputil.ReverseProxy

	mu      sync.Mutex
	faults  Faults
	changed chan struct{} // closed when the faults change
	counts  map[string]int
}

// Start starts a proxy for the API server of config. It forwards the client's token, and uses the client certificate of
// config if it has one. certificate is the proxy's serving certificate, from an authority that the clients trust.
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
	silent := log.New(io.Discard, "", 0) // broken connections are expected
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
	// HTTP/1.1 only: in HTTP/2 all requests share a connection, therefore a fault would affect all of them.
	go func() {
		_ = p.http.Serve(tls.NewListener(listener, &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, Certificates: []tls.Certificate{pair}}))
	}()
	return p, nil
}

// answerLost marks the context of a request whose response is dropped.
type answerLost struct{}

// Set changes the faults.
func (p *Proxy) Set(f Faults) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = f
	close(p.changed)
	p.changed = make(chan struct{})
}

// Counts returns the number of requests that passed, and of those that each fault affected.
func (p *Proxy) Counts() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprint(p.counts)
}

// Stop stops the proxy.
func (p *Proxy) Stop() error { return p.http.Close() }

func (p *Proxy) getFaults() (Faults, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults, p.changed
}

func (p *Proxy) count(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[what]++
}

// ServeHTTP forwards a request, or injects a fault.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	faults, changed := p.getFaults()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	isWatch := r.URL.Query().Get("watch") != ""
	chance := rand.Float64()
	switch {
	case faults.blocks(isWatch):
		p.count("hung")
		_, _ = io.Copy(io.Discard, r.Body) // otherwise a disconnected client is not detected
		select {
		case <-changed:
		case <-ctx.Done():
		}
		panic(http.ErrAbortHandler)
	case isWatch && chance < faults.Expired:
		p.count("expired")
		writeStatus(w, http.StatusGone, "Expired")
		return
	case !isWatch && chance < faults.Errors:
		p.count("500")
		writeStatus(w, http.StatusInternalServerError, "InternalError")
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
	go func() { // a partition aborts current requests
		for {
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
			if faults, changed = p.getFaults(); faults.blocks(isWatch) {
				cancel()
			}
		}
	}()
	p.count("passed")
	p.reverse.ServeHTTP(w, r.WithContext(ctx))
}

// writeStatus writes an error as an API server does.
func writeStatus(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":"an injected fault"}`, reason, code)
}
