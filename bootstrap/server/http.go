package server

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"log"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Limits of a connection. A request is small and has no body, or a small one. An answer has up to about 1.5 MiB, or is
// an agent with up to 8 MB, and can take a slow link. Between them the server can hold the request.
const (
	readHeaderTimeout = 10 * time.Second // each for a ClientHello, a handshake and a header: Ignition's own timeout for a handshake
	readTimeout       = 30 * time.Second // also ends a held request, so longer than any wait
	writeTimeout      = 3 * time.Minute
	idleTimeout       = 30 * time.Second
	maxHeaderBytes    = 16 << 10
)

// http1 is the only protocol that Ignition supports. Without HTTP/2 a connection has one request at a time, and resets
// of streams are not possible.
var http1 = func() (protocols http.Protocols) {
	protocols.SetHTTP1(true)
	return protocols
}()

// Header values that all answers share, to avoid allocations. They must not be modified.
var (
	typeIgnition = []string{ignitionType}
	typeGzip     = []string{"application/gzip"}
	typeJSON     = []string{"application/json"}
	noStore      = []string{"no-store"}
	varyAccept   = []string{"Accept"}
	// private: a MachineConfig can contain secrets, so a shared cache must not serve it to clients without a token.
	cachePrivately = []string{"private, max-age=31536000, immutable"}
	cachePublicly  = []string{"public, max-age=31536000, immutable"}
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
		// "OPTIONS *" is handled like any other request.
		DisableGeneralOptionsHandler: true,
	}
}

// TLSConfig returns the TLS settings for serving hosts: TLS 1.2 or newer, and HTTP/1.1. Go's server never renegotiates.
// The server asks for a client certificate and accepts any, because each request needs one of its own Cluster's CA, or
// none: see checkKubelet.
func TLSConfig(certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{
		MinVersion:            tls.VersionTLS12,
		NextProtos:            []string{"http/1.1"},
		GetCertificate:        certificate,
		ClientAuth:            tls.RequestClientCert,
		VerifyPeerCertificate: limitChain,
		// Small first records only help browsers. A host needs the whole file, which takes a third of the writes this
		// way.
		DynamicRecordSizingDisabled: true,
	}
}

// file is a download whose content never changes. It is immutable.
type file struct {
	// gzip is the compressed content. The gzip file is the resource itself, and not a transfer encoding: Ignition
	// requests only "identity", and decompresses because of the compression field of the resource.
	gzip []byte
	// sha512 is the hash of the uncompressed content, in hex.
	sha512 string
	// etag and length are values of response headers.
	etag, length []string
}

// packFile returns the download of some content, whose SHA-512 in hex is hash.
func packFile(plain []byte, hash string) (file, error) {
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return file{}, err
	}
	if _, err := w.Write(plain); err != nil {
		return file{}, err
	}
	if err := w.Close(); err != nil {
		return file{}, err
	}
	return file{gzip: bytes.Clone(packed.Bytes()), sha512: hash, etag: []string{`"` + hash + `"`}, length: []string{strconv.Itoa(packed.Len())}}, nil
}

// writeFile answers a request with a file, or with 304 if the client has it. Range requests are not supported: a host
// verifies the whole file, and Ignition sends none.
func writeFile(w http.ResponseWriter, r *http.Request, f file, cacheControl []string) error {
	h := w.Header()
	h["Content-Type"] = typeGzip
	h["Cache-Control"] = cacheControl
	h["Etag"] = f.etag
	if known := r.Header.Get("If-None-Match"); known != "" && (known == "*" || strings.Contains(known, f.etag[0])) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	h["Content-Length"] = f.length
	if r.Method == http.MethodHead {
		w.WriteHeader(http.StatusOK)
		return nil
	}
	_, err := w.Write(f.gzip)
	return err
}
