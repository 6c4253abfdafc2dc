package workload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TooLargeError is the error of a response that is larger than its reader allows.
type TooLargeError struct{ limit int64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the response has more than %d bytes", e.limit)
}

// ReaderAs returns a client that always reads from the API server of a workload cluster as another user, whom the
// manager impersonates. So it can read only what this user can read, which is usually less than the manager. A response
// with more than limit bytes is a TooLargeError. If there is no connection, the error satisfies IsUnreachable.
func ReaderAs(ctx context.Context, clusters clustercache.ClusterCache, cluster client.ObjectKey, user string, limit int64) (client.Reader, error) {
	original, err := Client(ctx, clusters, cluster)
	if err != nil {
		return nil, err
	}
	connection, err := clusters.GetRESTConfig(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", cluster, err)
	}
	config := rest.CopyConfig(connection)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return limitedTransport{next, limit} })
	return newSanitizingClient(cluster, config, original, nil)
}

// limitedTransport limits the size of responses.
type limitedTransport struct {
	http.RoundTripper
	limit int64
}

// RoundTrip sends a request.
func (t limitedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(request)
	if err == nil {
		response.Body = &limitedBody{ReadCloser: response.Body, remaining: t.limit, limit: t.limit}
	}
	return response, err
}

// limitedBody is the body of a response, of which at most limit bytes can be read.
type limitedBody struct {
	io.ReadCloser
	remaining, limit int64
}

// Read fails as soon as the body is longer than the limit.
func (b *limitedBody) Read(p []byte) (int, error) {
	if int64(len(p)) > b.remaining+1 {
		p = p[:b.remaining+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.remaining -= int64(n); b.remaining < 0 {
		return 0, &TooLargeError{b.limit}
	}
	return n, err
}

// isTooLarge reports whether a response was larger than its reader allows.
func isTooLarge(err error) bool {
	_, ok := errors.AsType[*TooLargeError](err)
	return ok
}
