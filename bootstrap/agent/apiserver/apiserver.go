// Package apiserver is the agent's client of the workload cluster's API server. It watches and annotates the Node of
// this host, and nothing else: since Kubernetes 1.34, a kubelet may not read more.
//
// It speaks HTTP and JSON itself: the client library of Kubernetes would make the agent several times as large.
package apiserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/kubelet"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
)

const (
	connectTimeout = 15 * time.Second
	headerTimeout  = 30 * time.Second
	// requestTimeout is how long a request may take, apart from a watch.
	requestTimeout = 30 * time.Second
	// watchTime is how long the API server keeps a watch.
	watchTime = 10 * time.Minute
	// shortestWatch is the time below which the end of a watch is an error.
	shortestWatch = time.Second
	// maxObject is the maximum size of an object in JSON. etcd limits it to about 1.5 MiB in another encoding.
	maxObject = 8 << 20
	// maxMessage is the maximum size of the part of an error that the server wrote.
	maxMessage = 512
)

// Client is a client for one Node.
type Client struct {
	base *url.URL
	node string
	http *http.Client
}

// New returns the client for a Node. certificate returns the current client certificate of its kubelet.
func New(server kubelet.APIServer, node string, certificate func() (*tls.Certificate, error)) *Client {
	dialer := net.Dialer{
		Timeout: connectTimeout,
		// A watch is silent for minutes. The kernel finds out that the other side is gone.
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 20 * time.Second, Interval: 10 * time.Second, Count: 3},
	}
	return &Client{base: server.URL, node: node, http: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSHandshakeTimeout: connectTimeout,
			ResponseHeaderTimeout: headerTimeout, MaxResponseHeaderBytes: 64 << 10, MaxIdleConns: 1, IdleConnTimeout: time.Minute,
			TLSClientConfig: &tls.Config{
				MinVersion: tls.VersionTLS12, RootCAs: server.CAs,
				GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate() },
			},
			TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}, // HTTP/1.1: a watch has a connection of its own
		},
	}}
}

// node is the part of a Node that matters.
type node struct {
	Metadata struct {
		Name            string            `json:"name"`
		ResourceVersion string            `json:"resourceVersion"`
		Annotations     map[string]string `json:"annotations"`
	} `json:"metadata"`
	Status struct {
		Conditions []struct {
			Type              string    `json:"type"`
			Status            string    `json:"status"`
			Message           string    `json:"message"`
			LastHeartbeatTime time.Time `json:"lastHeartbeatTime"`
		} `json:"conditions"`
	} `json:"status"`
}

// annotationPrefix is that of the annotations in api/agent/v1alpha1.
const annotationPrefix = "poolboot.io/"

// seen returns what the agent knows of a Node.
func (n *node) seen() agent.Node {
	seen := agent.Node{Known: true, Annotations: map[string]string{}, ReadyMessage: "it has no condition Ready yet"}
	for name, value := range n.Metadata.Annotations {
		if strings.HasPrefix(name, annotationPrefix) {
			seen.Annotations[name] = value
		}
	}
	for _, condition := range n.Status.Conditions {
		if condition.Type == "Ready" {
			seen.Ready, seen.ReadyMessage, seen.Heartbeat = condition.Status == "True", condition.Message, condition.LastHeartbeatTime
		}
	}
	return seen
}

// status is a Status of the API.
type status struct {
	Message string `json:"message"`
	Code    int    `json:"code"`
}

// StatusError is a refusal of the API server.
type StatusError struct {
	Code    int
	Message string
}

func (e *StatusError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("%d %s: %s", e.Code, http.StatusText(e.Code), e.Message))
}

// errGone means that the API server does not have the changes since a resource version any more.
var errGone = &StatusError{Code: http.StatusGone, Message: "too old resource version"}

// errDeleted means that the Node does not exist.
var errDeleted = errors.New("the Node does not exist: the kubelet registers it when it starts")

var errTooShort = errors.New("the API server ended the watch of the Node at once")

// Watch calls see for each change of the Node, until the context ends. It tries again after errors, of which it tells
// see: at once if the API server ended the watch as usual, and otherwise after wait, which gets the number of failures
// in a row.
func (c *Client) Watch(ctx context.Context, see func(agent.Node), wait func(ctx context.Context, failures int)) {
	var last agent.Node
	version, failures := "", 0
	for ctx.Err() == nil {
		began := time.Now()
		next, err := c.watchOnce(ctx, version, func(seen agent.Node) {
			last, failures = seen, 0
			see(seen)
		})
		version = next
		if err == nil && time.Since(began) < shortestWatch {
			err = errTooShort
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		c.http.CloseIdleConnections() // the next one sends the current certificate
		version = ""
		failures++
		if errors.Is(err, errGone) && failures == 1 {
			continue
		}
		last.Known, last.Problem = false, err.Error()
		see(last)
		wait(ctx, failures)
	}
}

// watchOnce reads the Node if version is empty, and then watches it. It returns the version that the next watch
// continues from.
func (c *Client) watchOnce(ctx context.Context, version string, see func(agent.Node)) (next string, err error) {
	if version == "" {
		var n node
		if err := c.read(ctx, "/api/v1/nodes/"+url.PathEscape(c.node), &n); err != nil {
			if refused := (*StatusError)(nil); errors.As(err, &refused) && refused.Code == http.StatusNotFound {
				err = errDeleted
			}
			return "", err
		}
		version = n.Metadata.ResourceVersion
		see(n.seen())
	}
	query := url.Values{
		"watch": {"true"}, "fieldSelector": {"metadata.name=" + c.node}, "resourceVersion": {version}, "allowWatchBookmarks": {"true"},
		"timeoutSeconds": {fmt.Sprint(int(watchTime.Seconds()))},
	}
	limited, cancel := context.WithTimeout(ctx, watchTime+requestTimeout)
	defer cancel()
	response, err := c.send(limited, http.MethodGet, "/api/v1/nodes", query, "", nil)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	return readEvents(response.Body, version, see)
}

// readEvents reads the events of a watch until it ends. It returns the last version.
func readEvents(body io.Reader, version string, see func(agent.Node)) (string, error) {
	limited := &io.LimitedReader{R: body}
	decoder := json.NewDecoder(limited)
	for {
		limited.N = maxObject
		var event struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := decoder.Decode(&event); err != nil {
			if errors.Is(err, io.EOF) && limited.N > 0 {
				return version, nil
			}
			return "", fmt.Errorf("the watch of the Node ended: %w", err)
		}
		if event.Type == "ERROR" {
			var refused status
			if err := json.Unmarshal(event.Object, &refused); err != nil {
				return "", err
			}
			if refused.Code == http.StatusGone {
				return "", errGone
			}
			return "", &StatusError{refused.Code, excerpt.Of(refused.Message, maxMessage)}
		}
		var n node
		if err := json.Unmarshal(event.Object, &n); err != nil {
			return "", fmt.Errorf("the watch of the Node sent something else: %w", err)
		}
		version = n.Metadata.ResourceVersion
		switch event.Type {
		case "ADDED", "MODIFIED":
			see(n.seen())
		case "DELETED":
			return "", errDeleted
		}
	}
}

// Annotate sets annotations of the Node, and removes those that are nil.
func (c *Client) Annotate(ctx context.Context, annotations map[string]*string) error {
	return c.patch(ctx, "application/merge-patch+json", map[string]any{"metadata": map[string]any{"annotations": annotations}})
}

// jsonPatch is an operation of a JSON Patch (RFC 6902).
type jsonPatch struct {
	Op    string  `json:"op"`
	Path  string  `json:"path"`
	Value *string `json:"value,omitempty"`
}

// Accept sets annotations of the Node, and removes those that are nil and exist, if the Node still tells the host to
// have a revision.
func (c *Client) Accept(ctx context.Context, revision string, annotations map[string]*string) error {
	pathOf := func(key string) string {
		return "/metadata/annotations/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
	}
	operations := []jsonPatch{{"test", pathOf(agentv1.DesiredAnnotation), &revision}}
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		operation := jsonPatch{"add", pathOf(key), annotations[key]}
		if operation.Value == nil {
			operation.Op = "remove"
		}
		operations = append(operations, operation)
	}
	return c.patch(ctx, "application/json-patch+json", operations)
}

// patch patches the Node.
func (c *Client) patch(ctx context.Context, contentType string, content any) error {
	patch, err := json.Marshal(content)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	response, err := c.send(limited, http.MethodPatch, "/api/v1/nodes/"+url.PathEscape(c.node), nil, contentType, patch)
	if err != nil {
		return fmt.Errorf("annotate the Node: %w", err)
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxObject))
	return response.Body.Close()
}

// Renewed returns when the kubelet renewed the Node's lease for the last time.
func (c *Client) Renewed(ctx context.Context) (time.Time, error) {
	var lease struct {
		Spec struct {
			RenewTime time.Time `json:"renewTime"`
		} `json:"spec"`
	}
	err := c.read(ctx, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/"+url.PathEscape(c.node), &lease)
	return lease.Spec.RenewTime, err
}

// read reads an object.
func (c *Client) read(ctx context.Context, path string, into any) error {
	limited, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	response, err := c.send(limited, http.MethodGet, path, nil, "", nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return json.NewDecoder(io.LimitReader(response.Body, maxObject)).Decode(into)
}

// send sends a request, and returns an answer with status 200. If the API server does not accept the certificate, it
// sends the request again over another connection: the certificate can be renewed.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, contentType string, body []byte) (*http.Response, error) {
	for isRetry := false; ; isRetry = true {
		address := c.base.JoinPath(path)
		address.RawQuery = query.Encode()
		request, err := http.NewRequestWithContext(ctx, method, address.String(), bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		request.Header.Set("Accept", "application/json")
		request.Header.Set("User-Agent", "poolboot-agent")
		if contentType != "" {
			request.Header.Set("Content-Type", contentType)
		}
		response, err := c.http.Do(request)
		if err != nil {
			if withURL, ok := errors.AsType[*url.Error](err); ok {
				err = withURL.Err
			}
			return nil, fmt.Errorf("%s: %w", c.base.Host, err)
		}
		if response.StatusCode == http.StatusOK {
			return response, nil
		}
		refusal, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
		_ = response.Body.Close()
		if response.StatusCode == http.StatusUnauthorized && !isRetry {
			c.http.CloseIdleConnections()
			continue
		}
		var refused status
		_ = json.Unmarshal(refusal, &refused)
		if response.StatusCode == http.StatusGone {
			return nil, errGone
		}
		return nil, &StatusError{response.StatusCode, excerpt.Of(refused.Message, maxMessage)}
	}
}
