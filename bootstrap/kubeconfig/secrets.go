package kubeconfig

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Secrets reads kubeconfig Secrets for code that passes their content to client-go, such as the cluster cache of
// Cluster API. It returns only what Read accepted, and not the original content. So the content that was checked is the
// content that is used.
type Secrets struct {
	// Reader reads the original Secrets.
	Reader client.Reader
}

// Get gets a kubeconfig Secret. The error is a *SecretError if Read refuses the kubeconfig.
func (s Secrets) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	kubeconfig, ok := object.(*corev1.Secret)
	if !ok {
		return fmt.Errorf("%T %s: only kubeconfig Secrets can be read", object, key)
	}
	read := &corev1.Secret{}
	config, err := readSecret(ctx, s.Reader, key, read, options...)
	if err != nil {
		return err
	}
	content, err := config.Kubeconfig("workload", "workload")
	if err != nil {
		return &SecretError{Secret: key, err: err}
	}
	*kubeconfig = corev1.Secret{TypeMeta: read.TypeMeta, ObjectMeta: read.ObjectMeta, Type: read.Type,
		Data: map[string][]byte{secret.KubeconfigDataName: content}}
	return nil
}

// List always returns an error, because callers know the Cluster of the kubeconfig that they need.
func (s Secrets) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("kubeconfig Secrets cannot be listed")
}
