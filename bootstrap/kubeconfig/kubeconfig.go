// Package kubeconfig reads kubeconfigs that a tenant wrote. client-go runs programs, reads files and follows redirects
// that a kubeconfig or its server specifies. A user who can write a Secret could do all this with the permissions of
// the program that reads it. All other code must therefore use this package, and never pass such a kubeconfig to
// client-go.
package kubeconfig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// Config is the supported part of a kubeconfig: the server of its current context, and the credential for it. All
// values are inline.
type Config struct {
	// Server is the https URL of the API server. TLSServerName is the name in its certificate, if it is not the host of
	// the URL.
	Server, TLSServerName string
	// CA are the certificates (PEM) that verify the server. If it is empty, those of the operating system are used.
	CA []byte
	// ClientCertificate and ClientKey (PEM), or Token, are the credential.
	ClientCertificate, ClientKey []byte
	Token                        string
}

// FieldError reports which field of a kubeconfig is refused, and why.
type FieldError struct {
	// Field is the path of the field, for example users[0].user.exec.
	Field string
	// Why describes what is wrong and what to do.
	Why string
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Why }

// SecretError reports a kubeconfig Secret that does not exist or cannot be used.
type SecretError struct {
	// Secret is the Secret with the kubeconfig.
	Secret client.ObjectKey
	err    error
}

func (e *SecretError) Error() string {
	if apierrors.IsNotFound(e.err) {
		return fmt.Sprintf("Secret %s with the kubeconfig of the Cluster does not exist: create it", e.Secret)
	}
	return fmt.Sprintf("%s: correct the kubeconfig in Secret %s", e.err, e.Secret)
}

func (e *SecretError) Unwrap() error { return e.err }

// SecretOf returns the key of the kubeconfig Secret of a Cluster.
func SecretOf(cluster client.ObjectKey) client.ObjectKey {
	return client.ObjectKey{Namespace: cluster.Namespace, Name: secret.Name(cluster.Name, secret.Kubeconfig)}
}

// OfCluster reads the kubeconfig of a Cluster from its Secret. The error is a *SecretError if a user must correct the
// Secret.
func OfCluster(ctx context.Context, secrets client.Reader, cluster client.ObjectKey) (*Config, error) {
	return readSecret(ctx, secrets, SecretOf(cluster), &corev1.Secret{})
}

func readSecret(ctx context.Context, secrets client.Reader, key client.ObjectKey, into *corev1.Secret, options ...client.GetOption) (*Config, error) {
	if err := secrets.Get(ctx, key, into, options...); apierrors.IsNotFound(err) {
		return nil, &SecretError{Secret: key, err: err}
	} else if err != nil {
		return nil, fmt.Errorf("kubeconfig Secret %s: %w", key, err)
	}
	content, ok := into.Data[secret.KubeconfigDataName]
	if !ok {
		return nil, &SecretError{Secret: key, err: &FieldError{Field: "data." + secret.KubeconfigDataName, Why: "is missing"}}
	}
	config, err := Read(content)
	if err != nil {
		return nil, &SecretError{Secret: key, err: err}
	}
	return config, nil
}

// Read parses a kubeconfig. In the cluster and user of the current context, it accepts the settings of a Config, and
// refuses every other setting that has an effect, with a *FieldError. It ignores everything else: other contexts,
// extensions, preferences.
//
// Errors never contain values, because a kubeconfig is secret.
func Read(content []byte) (*Config, error) {
	read := &clientcmdv1.Config{}
	if err := yaml.Unmarshal(content, read); err != nil {
		if wrongType, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrongType.Field != "" {
			return nil, &FieldError{Field: wrongType.Field, Why: "has the wrong type"}
		}
		return nil, errors.New("it is not a kubeconfig: it is not valid YAML, or it has another structure")
	}
	context := slices.IndexFunc(read.Contexts, func(c clientcmdv1.NamedContext) bool { return c.Name == read.CurrentContext })
	if context < 0 {
		return nil, &FieldError{Field: "current-context", Why: "contexts has no context with this name"}
	}
	chosen := read.Contexts[context].Context
	cluster := slices.IndexFunc(read.Clusters, func(c clientcmdv1.NamedCluster) bool { return c.Name == chosen.Cluster })
	if cluster < 0 {
		return nil, &FieldError{Field: fmt.Sprintf("contexts[%d].context.cluster", context), Why: "clusters has no cluster with this name"}
	}
	config := &Config{}
	if err := config.readCluster(fmt.Sprintf("clusters[%d].cluster", cluster), &read.Clusters[cluster].Cluster); err != nil {
		return nil, err
	}
	if chosen.AuthInfo == "" {
		return config, nil
	}
	user := slices.IndexFunc(read.AuthInfos, func(u clientcmdv1.NamedAuthInfo) bool { return u.Name == chosen.AuthInfo })
	if user < 0 {
		return nil, &FieldError{Field: fmt.Sprintf("contexts[%d].context.user", context), Why: "users has no user with this name"}
	}
	return config, config.readUser(fmt.Sprintf("users[%d].user", user), &read.AuthInfos[user].AuthInfo)
}

// Reasons why a field is refused.
const (
	filesNotRead         = "files are not read, because the program that connects would read its own files: put the content in "
	programsNotRun       = "programs are not run, because they would run with the permissions of the program that connects: use a client certificate or a token"
	unsupportedSetting   = "is not supported: use a client certificate or a token of a user with the permissions of an administrator"
	proxyNotSupported    = "is not supported, because a tenant could make the program connect to any address: set HTTPS_PROXY for the program"
	insecureNotSupported = "is not supported, because hosts also verify the API server: use certificate-authority-data"
	serverFormat         = "must be an https URL with a host, and without user, query or fragment"
	unpairedError        = "client-certificate-data and client-key-data must be set together"
)

// unsupported is a field that is refused if it is set.
type unsupported struct {
	isSet      bool
	field, why string
}

// refuse returns an error for the first of the fields that is set.
func refuse(path string, fields []unsupported) error {
	for _, f := range fields {
		if f.isSet {
			return &FieldError{Field: path + "." + f.field, Why: f.why}
		}
	}
	return nil
}

func (c *Config) readCluster(path string, from *clientcmdv1.Cluster) error {
	if err := refuse(path, []unsupported{
		{from.CertificateAuthority != "", "certificate-authority", filesNotRead + "certificate-authority-data"},
		{from.InsecureSkipTLSVerify, "insecure-skip-tls-verify", insecureNotSupported},
		{from.ProxyURL != "", "proxy-url", proxyNotSupported},
		{!isServer(from.Server), "server", serverFormat},
	}); err != nil {
		return err
	}
	c.Server, c.TLSServerName, c.CA = from.Server, from.TLSServerName, from.CertificateAuthorityData
	return nil
}

func (c *Config) readUser(path string, from *clientcmdv1.AuthInfo) error {
	if err := refuse(path, []unsupported{
		{from.Exec != nil, "exec", programsNotRun},
		{from.AuthProvider != nil, "auth-provider", programsNotRun},
		{from.TokenFile != "", "tokenFile", filesNotRead + "token"},
		{from.ClientCertificate != "", "client-certificate", filesNotRead + "client-certificate-data"},
		{from.ClientKey != "", "client-key", filesNotRead + "client-key-data"},
		{from.Username != "", "username", unsupportedSetting},
		{from.Password != "", "password", unsupportedSetting},
		{from.Impersonate != "", "as", unsupportedSetting},
		{from.ImpersonateUID != "", "as-uid", unsupportedSetting},
		{len(from.ImpersonateGroups) > 0, "as-groups", unsupportedSetting},
		{len(from.ImpersonateUserExtra) > 0, "as-user-extra", unsupportedSetting},
		{(len(from.ClientCertificateData) == 0) != (len(from.ClientKeyData) == 0), "client-certificate-data", unpairedError},
	}); err != nil {
		return err
	}
	c.ClientCertificate, c.ClientKey, c.Token = from.ClientCertificateData, from.ClientKeyData, from.Token
	return nil
}

// isServer reports whether a URL is valid for an API server that is reached only over TLS.
func isServer(server string) bool {
	u, err := url.Parse(server)
	return err == nil && u.Scheme == "https" && u.Hostname() != "" && u.User == nil &&
		u.RawQuery == "" && !u.ForceQuery && u.Fragment == ""
}

// Kubeconfig returns the Config as a kubeconfig, in JSON, with a cluster and a user. It has only the settings that Read
// accepted.
func (c *Config) Kubeconfig(cluster, user string) ([]byte, error) {
	return json.MarshalIndent(clientcmdv1.Config{
		APIVersion: clientcmdv1.SchemeGroupVersion.Version, Kind: "Config", CurrentContext: user,
		Clusters: []clientcmdv1.NamedCluster{{Name: cluster,
			Cluster: clientcmdv1.Cluster{Server: c.Server, TLSServerName: c.TLSServerName, CertificateAuthorityData: c.CA}}},
		AuthInfos: []clientcmdv1.NamedAuthInfo{{Name: user,
			AuthInfo: clientcmdv1.AuthInfo{ClientCertificateData: c.ClientCertificate, ClientKeyData: c.ClientKey, Token: c.Token}}},
		Contexts: []clientcmdv1.NamedContext{{Name: user, Context: clientcmdv1.Context{Cluster: cluster, AuthInfo: user}}},
	}, "", "  ")
}

// REST returns the client-go configuration for a connection.
func (c *Config) REST() *rest.Config {
	return &rest.Config{Host: c.Server, BearerToken: c.Token, TLSClientConfig: rest.TLSClientConfig{
		ServerName: c.TLSServerName, CAData: c.CA, CertData: c.ClientCertificate, KeyData: c.ClientKey,
	}}
}

// HTTPClient returns an HTTP client that does not follow redirects. A server that a tenant chose could redirect a
// request, with everything in it, to any address that this program can reach, also over plain HTTP.
func HTTPClient(config *rest.Config) (*http.Client, error) {
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	own := *c // c can be http.DefaultClient
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &own, nil
}

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
