package workload

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// lookTimeout is how long a look at an API server may take: who asks has hosts of other clusters waiting.
	lookTimeout = 3 * time.Second
	// lookInterval is how long what a look found is good.
	lookInterval = 10 * time.Second
)

// Diagnosis finds out why there is no connection to a workload cluster: the cluster cache only logs it. The zero value with
// Secrets is ready to use.
type Diagnosis struct {
	// Secrets reads the Secrets with the clusters' kubeconfigs.
	Secrets client.Reader

	mu    sync.Mutex
	looks map[client.ObjectKey]look
}

// look is what was found when an API server was last looked at.
type look struct {
	began time.Time
	why   error
}

// Why returns why an API server can't be reached, with the cure; nil when nothing is wrong, or is known yet. However many ask
// there is one look at a cluster at a time, and those who ask meanwhile get what the one before has found.
func (d *Diagnosis) Why(ctx context.Context, cluster client.ObjectKey) error {
	d.mu.Lock()
	known, is := d.looks[cluster]
	if is && time.Since(known.began) < lookInterval {
		d.mu.Unlock()
		return known.why
	}
	if d.looks == nil {
		d.looks = map[client.ObjectKey]look{}
	}
	known.began = time.Now()
	d.looks[cluster] = known
	d.mu.Unlock()

	known.why = d.look(ctx, cluster)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.looks[cluster] = known
	return known.why
}

func (d *Diagnosis) look(ctx context.Context, cluster client.ObjectKey) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	cure := fmt.Sprintf("correct the kubeconfig in Secret %s/%s", cluster.Namespace, secret.Name(cluster.Name, secret.Kubeconfig))
	raw, err := kubeconfig.FromSecret(ctx, d.Secrets, cluster)
	if err != nil {
		return fmt.Errorf("%w: %s", err, cure)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(raw)
	if err != nil {
		return fmt.Errorf("%w: %s", err, cure)
	}
	config.Timeout = lookTimeout
	url, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return fmt.Errorf("%w: %s", err, cure)
	}
	connection, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("%w: %s", err, cure)
	}
	defer connection.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url.String(), http.NoBody)
	if err != nil {
		return fmt.Errorf("%w: %s", err, cure)
	}
	answer, err := connection.Do(request)
	if err == nil {
		defer func() { _ = answer.Body.Close() }()
		if answer.StatusCode >= http.StatusBadRequest {
			err = fmt.Errorf("%s answers %s", config.Host, answer.Status)
		}
	}
	var operation *net.OpError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s gave no answer in %s: see to the API server there, or %s", config.Host, lookTimeout, cure)
	case errors.As(err, &operation): // its own text names the port of this end, which is another one each time
		return fmt.Errorf("%s: %s: %w: see to the API server there, or %s", config.Host, operation.Op, operation.Err, cure)
	}
	return fmt.Errorf("%w: %s", err, cure)
}
