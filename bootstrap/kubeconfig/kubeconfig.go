// Package kubeconfig reads kubeconfigs that a tenant wrote. client-go runs programs, reads files and follows redirects
// as a kubeconfig and the server in it tell it to; whoever may write a Secret could do all that with the rights of the
// program that reads it. So no other code may give such a kubeconfig to client-go.
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
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// Config is what is used of a kubeconfig: the server of its current context and the credential for it, all inline.
type Config struct {
	// Server is the https URL of the API server; TLSServerName is the name in its certificate, if that is not the
	// URL's.
	Server, TLSServerName string
	// CA are the certificates (PEM) by which the server is trusted; empty means those of the operating system.
	CA []byte
	// ClientCertificate and ClientKey (PEM), or Token, are the credential.
	ClientCertificate, ClientKey []byte
	Token                        string
}

// FieldError says which field of a kubeconfig is refused, and why.
type FieldError struct {
	// Field is its path, say users[0].user.exec.
	Field string
	// Why says what is wrong with it and what to do.
	Why string
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Why }

// SecretError is a kubeconfig Secret that does not exist or can't be used.
type SecretError struct {
	// Secret is the Secret that holds the kubeconfig.
	Secret client.ObjectKey
	err    error
}

func (e *SecretError) Error() string {
	return fmt.Sprintf("%s: correct the kubeconfig in Secret %s", e.err, e.Secret)
}

func (e *SecretError) Unwrap() error { return e.err }

// SecretOf returns the key of the Secret with a Cluster's kubeconfig.
func SecretOf(cluster client.ObjectKey) client.ObjectKey {
	return client.ObjectKey{Namespace: cluster.Namespace, Name: secret.Name(cluster.Name, secret.Kubeconfig)}
}

// OfCluster reads a Cluster's kubeconfig from its Secret. The error is a SecretError when somebody has to correct the
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

// Read reads a kubeconfig. Of the current context's cluster and user it accepts what a Config holds and refuses, by a
// FieldError, every other setting that has an effect. It leaves out the rest: other contexts, extensions, preferences.
//
// Errors never repeat values: a kubeconfig is a Secret.
func Read(content []byte) (*Config, error) {
	read := &clientcmdv1.Config{}
	if err := yaml.Unmarshal(content, read); err != nil {
		if wrongType, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrongType.Field != "" {
			return nil, &FieldError{Field: wrongType.Field, Why: "is of the wrong type"}
		}
		return nil, errors.New("it is not a kubeconfig: not valid YAML, or of another structure")
	}
	context := slices.IndexFunc(read.Contexts, func(c clientcmdv1.NamedContext) bool { return c.Name == read.CurrentContext })
	if context < 0 {
		return nil, &FieldError{Field: "current-context", Why: "contexts has no context of this name"}
	}
	chosen := read.Contexts[context].Context
	cluster := slices.IndexFunc(read.Clusters, func(c clientcmdv1.NamedCluster) bool { return c.Name == chosen.Cluster })
	if cluster < 0 {
		return nil, &FieldError{Field: fmt.Sprintf("contexts[%d].context.cluster", context), Why: "clusters has no cluster of this name"}
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
		return nil, &FieldError{Field: fmt.Sprintf("contexts[%d].context.user", context), Why: "users has no user of this name"}
	}
	return config, config.readUser(fmt.Sprintf("users[%d].user", user), &read.AuthInfos[user].AuthInfo)
}

// Why a field is refused.
const (
	noFiles       = "files are not read, because they would be those of the program that connects: put the content in "
	noPrograms    = "programs are not run, because they would run with the rights of the program that connects: use a client certificate or a token"
	noSettings    = "is not supported: use a client certificate or a token of a user with the rights of an administrator"
	noProxy       = "is not supported, because a tenant could have any address called by it: set HTTPS_PROXY of the program that connects"
	noInsecure    = "is not supported, because hosts verify the API server too: use certificate-authority-data"
	serverFormat  = "must be an https URL with a host, and without user, query or fragment"
	unpairedError = "client-certificate-data and client-key-data must be set together"
)

func (c *Config) readCluster(path string, from *clientcmdv1.Cluster) error {
	for _, refused := range []struct {
		is         bool
		field, why string
	}{
		{from.CertificateAuthority != "", "certificate-authority", noFiles + "certificate-authority-data"},
		{from.InsecureSkipTLSVerify, "insecure-skip-tls-verify", noInsecure},
		{from.ProxyURL != "", "proxy-url", noProxy},
		{!isServer(from.Server), "server", serverFormat},
	} {
		if refused.is {
			return &FieldError{Field: path + "." + refused.field, Why: refused.why}
		}
	}
	c.Server, c.TLSServerName, c.CA = from.Server, from.TLSServerName, from.CertificateAuthorityData
	return nil
}

func (c *Config) readUser(path string, from *clientcmdv1.AuthInfo) error {
	for _, refused := range []struct {
		is         bool
		field, why string
	}{
		{from.Exec != nil, "exec", noPrograms},
		{from.AuthProvider != nil, "auth-provider", noPrograms},
		{from.TokenFile != "", "tokenFile", noFiles + "token"},
		{from.ClientCertificate != "", "client-certificate", noFiles + "client-certificate-data"},
		{from.ClientKey != "", "client-key", noFiles + "client-key-data"},
		{from.Username != "", "username", noSettings},
		{from.Password != "", "password", noSettings},
		{from.Impersonate != "", "as", noSettings},
		{from.ImpersonateUID != "", "as-uid", noSettings},
		{len(from.ImpersonateGroups) > 0, "as-groups", noSettings},
		{len(from.ImpersonateUserExtra) > 0, "as-user-extra", noSettings},
		{(len(from.ClientCertificateData) == 0) != (len(from.ClientKeyData) == 0), "client-certificate-data", unpairedError},
	} {
		if refused.is {
			return &FieldError{Field: path + "." + refused.field, Why: refused.why}
		}
	}
	c.ClientCertificate, c.ClientKey, c.Token = from.ClientCertificateData, from.ClientKeyData, from.Token
	return nil
}

// isServer says whether a URL can be an API server's, spoken to over TLS alone.
func isServer(server string) bool {
	u, err := url.Parse(server)
	return err == nil && u.Scheme == "https" && u.Hostname() != "" && u.User == nil &&
		u.RawQuery == "" && !u.ForceQuery && u.Fragment == ""
}

// Kubeconfig writes the config as a kubeconfig: what was read, and nothing that was not understood.
func (c *Config) Kubeconfig() ([]byte, error) {
	const name = "workload"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: c.Server, TLSServerName: c.TLSServerName, CertificateAuthorityData: c.CA}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: c.ClientCertificate, ClientKeyData: c.ClientKey, Token: c.Token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return clientcmd.Write(*config)
}

// REST returns the config of a connection.
func (c *Config) REST() *rest.Config {
	return &rest.Config{Host: c.Server, BearerToken: c.Token, TLSClientConfig: rest.TLSClientConfig{
		ServerName: c.TLSServerName, CAData: c.CA, CertData: c.ClientCertificate, KeyData: c.ClientKey,
	}}
}

// HTTPClient returns an HTTP client for a connection that follows no redirect: a server that a tenant chose could send
// it, with all that a request carries, to every address that this program reaches, over plain HTTP too.
func HTTPClient(config *rest.Config) (*http.Client, error) {
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	own := *c // it may be http.DefaultClient
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &own, nil
}
