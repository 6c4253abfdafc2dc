// Package kubelet reads the identity of the kubelet of this host: its client certificate, which the kubelet renews by
// itself, and where its API server is. The agent uses them, so that it needs no secret of its own.
package kubelet

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// CertificatePath is the kubelet's client certificate with its key. It is a symbolic link: the kubelet writes each
// certificate to a file of its own.
const CertificatePath = ignition.KubeletPKIDirectory + "/kubelet-client-current.pem"

// nodePrefix is the prefix of the common name of a kubelet's client certificate.
const nodePrefix = "system:node:"

// maxFile is the maximum size of a file that is read, in bytes.
const maxFile = 1 << 20

// Host is a host with a kubelet.
type Host struct {
	// Root is the root directory of the host.
	Root *os.Root
}

// ErrNotJoined means that the kubelet has no client certificate yet, or no API server.
var ErrNotJoined = errors.New("the host has not joined its cluster yet")

// read returns a file. Absolute symbolic links in a root other than / would lead out of it, so the target is read
// instead: the kubelet writes absolute ones.
func (h Host) read(name string) ([]byte, error) {
	relative := strings.TrimPrefix(name, "/")
	if target, err := h.Root.Readlink(relative); err == nil && path.IsAbs(target) {
		relative = strings.TrimPrefix(target, "/")
	}
	file, err := h.Root.Open(relative)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", name, maxFile)
	}
	return data, err
}

// Certificate returns the current client certificate of the kubelet. The error is ErrNotJoined if there is none. It
// never has the key.
func (h Host) Certificate() (*tls.Certificate, error) {
	raw, err := h.read(CertificatePath)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", CertificatePath, ErrNotJoined)
	}
	if err != nil {
		return nil, err
	}
	certificate, err := tls.X509KeyPair(raw, raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", CertificatePath, err)
	}
	return &certificate, nil
}

// NodeName returns the name of the Node that a certificate is for.
func NodeName(certificate *tls.Certificate) (string, error) {
	name, isNode := strings.CutPrefix(certificate.Leaf.Subject.CommonName, nodePrefix)
	if !isNode || name == "" {
		return "", fmt.Errorf("%s: its common name is not %s<name of the Node>: it is not that of a kubelet", CertificatePath, nodePrefix)
	}
	return name, nil
}

// APIServer is where the API server of the kubelet is.
type APIServer struct {
	URL *url.URL
	// CAs verify its certificate.
	CAs *x509.CertPool
}

// kubeconfig is the part of a kubeconfig that matters.
type kubeconfig struct {
	CurrentContext string `json:"current-context"`
	Contexts       []struct {
		Name    string `json:"name"`
		Context struct {
			Cluster string `json:"cluster"`
		} `json:"context"`
	} `json:"contexts"`
	Clusters []struct {
		Name    string `json:"name"`
		Cluster struct {
			Server string `json:"server"`
			CAData []byte `json:"certificate-authority-data"`
			CAFile string `json:"certificate-authority"`
		} `json:"cluster"`
	} `json:"clusters"`
}

// APIServer reads the kubeconfig of the kubelet. The error is ErrNotJoined if there is none.
func (h Host) APIServer() (APIServer, error) {
	raw, err := h.read(ignition.KubeconfigPath)
	if errors.Is(err, os.ErrNotExist) {
		return APIServer{}, fmt.Errorf("%s: %w", ignition.KubeconfigPath, ErrNotJoined)
	}
	if err != nil {
		return APIServer{}, err
	}
	server, err := h.parse(raw)
	if err != nil {
		return APIServer{}, fmt.Errorf("%s: %w", ignition.KubeconfigPath, err)
	}
	return server, nil
}

// parse reads a kubeconfig. Its errors have none of the contents, which can be secret.
func (h Host) parse(raw []byte) (APIServer, error) {
	var config kubeconfig
	if yaml.Unmarshal(raw, &config) != nil {
		return APIServer{}, errors.New("it is not a kubeconfig")
	}
	clusterName := ""
	for _, context := range config.Contexts {
		if context.Name == config.CurrentContext {
			clusterName = context.Context.Cluster
		}
	}
	for _, cluster := range config.Clusters {
		if cluster.Name != clusterName {
			continue
		}
		address, err := url.Parse(cluster.Cluster.Server)
		if err != nil || address.Scheme != "https" || address.Host == "" || address.User != nil {
			return APIServer{}, errors.New("the URL of the server is not of the form https://<host>:<port>")
		}
		bundle := cluster.Cluster.CAData
		if len(bundle) == 0 {
			if bundle, err = h.read(cluster.Cluster.CAFile); err != nil {
				return APIServer{}, fmt.Errorf("certificate-authority: %w", err)
			}
		}
		pool := x509.NewCertPool()
		if block, _ := pem.Decode(bundle); block == nil || !pool.AppendCertsFromPEM(bundle) {
			return APIServer{}, errors.New("it has no certificate authority of the server")
		}
		return APIServer{URL: address, CAs: pool}, nil
	}
	return APIServer{}, errors.New("its current context has no cluster")
}
