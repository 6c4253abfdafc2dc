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
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 30 * time.Second // also ends a held request, so longer than any wait
	writeTimeout      = 3 * time.Minute
	idleTimeout       = 90 * time.Second
	maxHeaderBytes    = 16 << 10
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
	}
}

// TLSConfig returns the TLS settings for serving hosts: TLS 1.2 or newer, and HTTP/1.1, which is all that Ignition speaks.
func TLSConfig(certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"http/1.1"},
		GetCertificate: certificate,
	}
}
