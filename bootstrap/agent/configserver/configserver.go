// Package configserver is the agent's client of the config server. It identifies the host by the client certificate of
// its kubelet, which it reads for each connection, because the kubelet renews it.
//
// Sizes and times of all answers are limited. Errors name the host and the status, but no URL: it can have a signature.
package configserver

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"golang.org/x/time/rate"
	"k8s.io/utils/ptr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
)

// Limits of answers.
const (
	// requestTimeout is how long one request may take. The config server ends its answers earlier.
	requestTimeout = 4 * time.Minute
	// connectTimeout is how long each of the connection and the TLS handshake may take.
	connectTimeout = 15 * time.Second
	// headerTimeout is how long the config server may take to begin its answer. It holds requests for up to 10 s.
	headerTimeout = 30 * time.Second

	maxRendered = 16 << 20
	maxProgram  = 64 << 20
	maxContents = 64 << 20
	// maxChunk is how many bytes are read at once while there is a limit.
	maxChunk = 64 << 10
	// maxMessage is the maximum size of the part of an error that the server wrote.
	maxMessage = 512
)

// Client is a client of the config server.
type Client struct {
	settings assignment.Settings
	server   *http.Client
	// elsewhere is for contents at other URLs. It has no certificate.
	elsewhere *http.Client
	// limit is for all downloads together. It is nil if there is none.
	limit *rate.Limiter
}

// New returns the client of a host. certificate returns the current client certificate of its kubelet.
func New(settings assignment.Settings, certificate func() (*tls.Certificate, error)) (*Client, error) {
	secure := &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return certificate()
		},
	}
	if settings.CA != "" {
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM([]byte(settings.CA)) {
			return nil, fmt.Errorf("%s: ca has no certificate", assignment.SettingsPath)
		}
	}
	server := newHTTPClient(secure)
	server.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{settings: settings, server: server, elsewhere: newHTTPClient(&tls.Config{MinVersion: tls.VersionTLS12})}, nil
}

// Limit sets how many bytes per second are downloaded at most. 0 is no limit. A request can take as much longer as the
// largest answer takes.
func (c *Client) Limit(bytesPerSecond int64) {
	c.limit, c.server.Timeout, c.elsewhere.Timeout = nil, requestTimeout, requestTimeout
	if bytesPerSecond > 0 {
		longer := requestTimeout + time.Duration(maxContents/bytesPerSecond)*time.Second
		c.limit, c.server.Timeout, c.elsewhere.Timeout = rate.NewLimiter(rate.Limit(bytesPerSecond), maxChunk), longer, longer
	}
}

// limitedReader reads not faster than its limit.
type limitedReader struct {
	io.Reader
	ctx   context.Context
	limit *rate.Limiter
}

func (r limitedReader) Read(buffer []byte) (int, error) {
	n, err := r.Reader.Read(buffer[:min(len(buffer), maxChunk)])
	if errWait := r.limit.WaitN(r.ctx, n); errWait != nil {
		return n, errWait
	}
	return n, err
}

func newHTTPClient(secure *tls.Config) *http.Client {
	dialer := net.Dialer{Timeout: connectTimeout}
	return &http.Client{
		Timeout: requestTimeout,
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSClientConfig: secure, TLSHandshakeTimeout: connectTimeout,
			ResponseHeaderTimeout: headerTimeout, MaxResponseHeaderBytes: 64 << 10,
			DisableKeepAlives:  true, // requests are rare, and each should send the current certificate
			DisableCompression: true, // configs are gzip files
			TLSNextProto:       map[string]func(string, *tls.Conn) http.RoundTripper{},
		},
	}
}

// StatusError is an answer that is not what was requested.
type StatusError struct {
	// Code is the HTTP status, and Message the beginning of the answer.
	Code    int
	Message string
}

func (e *StatusError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("%d %s: %s", e.Code, http.StatusText(e.Code), e.Message))
}

// Is reports whether the answer is final, or is about the certificate, for errors.Is.
func (e *StatusError) Is(target error) bool {
	return target == agent.ErrNotAccepted && e.Code == http.StatusUnauthorized || target == agent.ErrRefused && (e.Code == http.StatusForbidden || e.Code == http.StatusNotFound)
}

// Assignment returns the document of the host's assignment.
func (c *Client) Assignment(ctx context.Context) ([]byte, error) {
	address, err := c.settings.UpdateURL()
	if err != nil {
		return nil, err
	}
	return c.do(ctx, c.server, http.MethodGet, address, nil, assignment.MaxSize)
}

// Register requests that the Node is pre-registered, and returns when the config server says that it is. The server
// answers with status 503 while it is not: request it again.
func (c *Client) Register(ctx context.Context) error {
	address, err := c.settings.UpdateURL()
	if err != nil {
		return err
	}
	_, err = c.do(ctx, c.server, http.MethodPost, address, nil, maxMessage)
	return err
}

// Rendered returns the document of a rendered config.
func (c *Client) Rendered(ctx context.Context, name string) ([]byte, error) {
	address, err := c.settings.RenderedURL(name)
	if err != nil {
		return nil, err
	}
	packed, err := c.do(ctx, c.server, http.MethodGet, address, nil, maxRendered)
	if err != nil {
		return nil, err
	}
	return gunzip(packed, maxRendered)
}

// Program returns a program of the agent.
func (c *Client) Program(ctx context.Context, sha512 string) ([]byte, error) {
	address, err := assignment.AgentURL(c.settings.Server, sha512)
	if err != nil {
		return nil, err
	}
	packed, err := c.do(ctx, c.server, http.MethodGet, address, nil, maxProgram)
	if err != nil {
		return nil, err
	}
	return gunzip(packed, maxProgram)
}

// Contents returns the decompressed contents that a configuration has at a URL. It is for http and https, as is the
// agent: a host can have no programs or credentials for other places.
func (c *Client) Contents(ctx context.Context, resource types.Resource) ([]byte, error) {
	address := ptr.Deref(resource.Source, "")
	if parsed, err := url.Parse(address); err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" {
		return nil, errors.New("the contents are at a URL that a running host can't download: use http, https or data")
	}
	header := http.Header{}
	for _, h := range resource.HTTPHeaders {
		header.Add(h.Name, ptr.Deref(h.Value, ""))
	}
	contents, err := c.do(ctx, c.elsewhere, http.MethodGet, address, header, maxContents)
	if refused := (*StatusError)(nil); errors.As(err, &refused) {
		// It is not one of the config server, and what another server says can have what the request has, such as a
		// password. Errors are reported to the cluster.
		return nil, fmt.Errorf("the server of the contents answers %d %s", refused.Code, http.StatusText(refused.Code))
	}
	if err != nil || ptr.Deref(resource.Compression, "") != "gzip" {
		return contents, err
	}
	return gunzip(contents, maxContents)
}

// do sends a request, and returns the body of its answer.
func (c *Client) do(ctx context.Context, client *http.Client, method, address string, header http.Header, limit int64) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, address, http.NoBody)
	if err != nil {
		return nil, errors.New("the URL is malformed")
	}
	if header != nil {
		request.Header = header
	}
	response, err := client.Do(request)
	if err != nil {
		if withURL, ok := errors.AsType[*url.Error](err); ok {
			err = withURL.Err
		}
		return nil, fmt.Errorf("%s: %w", request.URL.Host, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusNoContent {
		message, _ := io.ReadAll(io.LimitReader(response.Body, maxMessage+1))
		return nil, fmt.Errorf("%s: %w", request.URL.Host, &StatusError{response.StatusCode, excerpt.Line(string(message), maxMessage)})
	}
	var from io.Reader = response.Body
	if c.limit != nil {
		from = limitedReader{from, ctx, c.limit}
	}
	body, err := io.ReadAll(io.LimitReader(from, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", request.URL.Host, err)
	case int64(len(body)) > limit:
		return nil, fmt.Errorf("%s: the answer has more than %d bytes", request.URL.Host, limit)
	}
	return body, nil
}

// gunzip decompresses a gzip file of at most limit decompressed bytes.
func gunzip(packed []byte, limit int64) ([]byte, error) {
	file, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("the answer is not a gzip file: %w", err)
	}
	plain, err := io.ReadAll(io.LimitReader(file, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the answer is a malformed gzip file: %w", err)
	case int64(len(plain)) > limit:
		return nil, fmt.Errorf("the answer has more than %d bytes, decompressed", limit)
	}
	return plain, nil
}
