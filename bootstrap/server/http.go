package server

import (
	"crypto/tls"
	"log"
	"net/http"
	"time"
)

// Limits of a connection. A request is small and has no body; an answer is some 1.5 MiB at most, over links that may be
// slow; and in between a host may be made to wait.
const (
	readHeaderTimeout = 10 * time.Second // for a ClientHello, a handshake and a header each: Ignition gives a handshake up after that
	readTimeout       = 30 * time.Second // also ends a held request, so longer than any wait
	writeTimeout      = 3 * time.Minute
	idleTimeout       = 30 * time.Second
	maxHeaderBytes    = 16 << 10
)

// http1 is all that Ignition speaks. Without HTTP/2 a connection has one request at a time, and none that is reset
// costs more than the next one.
var http1 = func() (protocols http.Protocols) {
	protocols.SetHTTP1(true)
	return protocols
}()

// Values of headers that are the same in every answer, so that none is made for each. Nobody may change them.
var (
	typeIgnition = []string{ignitionType}
	typeGzip     = []string{"application/gzip"}
	typeJSON     = []string{"application/json"}
	noStore      = []string{"no-store"}
	varyAccept   = []string{"Accept"}
	// Private: a MachineConfig may hold secrets, so a shared cache must not hand it on to who has no token.
	keptForEver = []string{"private, max-age=31536000, immutable"}
)

// NewHTTPServer returns an HTTP server with limits that fit a Server's requests.
func NewHTTPServer(handler http.Handler, errorLog *log.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          errorLog,
		ConnContext:       withConnection,
		Protocols:         &http1,
		// "OPTIONS *" is a path like any other.
		DisableGeneralOptionsHandler: true,
	}
}

// TLSConfig returns the TLS settings for serving hosts: TLS 1.2 or newer, and HTTP/1.1. Go's server never renegotiates.
func TLSConfig(certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"http/1.1"},
		GetCertificate: certificate,
		// Small first records show a page sooner. A host needs the whole file, which so takes a third of the writes.
		DynamicRecordSizingDisabled: true,
	}
}
