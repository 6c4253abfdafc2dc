package staticpods

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v2"
)

const (
	// maxManifest is the maximum size of a file that is read, in bytes. The manifests of kubeadm have about 5 KiB.
	maxManifest = 128 << 10
	// maxProbes is the maximum number of containers with a probe in one manifest.
	maxProbes = 16
	// usualTimeout is the timeout of a probe that sets none, as for the kubelet. maxTimeout is the longest.
	usualTimeout, maxTimeout = time.Second, 15 * time.Second
)

// pod is the part of a manifest that matters.
type pod struct {
	Kind string `yaml:"kind"`
	Spec struct {
		HostNetwork bool        `yaml:"hostNetwork"`
		Containers  []container `yaml:"containers"`
		Volumes     []struct {
			HostPath struct {
				Path string `yaml:"path"`
			} `yaml:"hostPath"`
		} `yaml:"volumes"`
	} `yaml:"spec"`
}

type container struct {
	Name  string `yaml:"name"`
	Ports []struct {
		Name          string `yaml:"name"`
		ContainerPort int    `yaml:"containerPort"`
	} `yaml:"ports"`
	Readiness handler `yaml:"readinessProbe"`
	Liveness  handler `yaml:"livenessProbe"`
	Startup   handler `yaml:"startupProbe"`
}

type handler struct {
	TimeoutSeconds int      `yaml:"timeoutSeconds"`
	HTTPGet        *httpGet `yaml:"httpGet"`
}

type httpGet struct {
	Scheme  string `yaml:"scheme"`
	Host    string `yaml:"host"`
	Port    any    `yaml:"port"` // a number, or a name
	Path    string `yaml:"path"`
	Headers []struct {
		Name  string `yaml:"name"`
		Value string `yaml:"value"`
	} `yaml:"httpHeaders"`
}

// probe is an HTTP request that the kubelet sends to a container.
type probe struct {
	container string
	// url is the request without a host, and host is "" for the address of the host.
	url        url.URL
	host, port string
	header     http.Header
	timeout    time.Duration
}

// podOf returns the Pod of a manifest. That of another kind has nothing.
func podOf(raw []byte) (p pod, _ error) {
	if err := yaml.Unmarshal(raw, &p); err != nil {
		return pod{}, errors.New("it is no manifest of a Pod in YAML or JSON") // the text of the error has contents
	}
	if p.Kind != "Pod" {
		return pod{}, nil
	}
	return p, nil
}

// parse returns the probes of a manifest: of each container the first one of readiness, liveness and startup that is an
// HTTP request. Without the network of the host, a container has an address that only the container runtime knows, so
// it has none.
func parse(raw []byte) (probes []probe, _ error) {
	p, err := podOf(raw)
	if err != nil {
		return nil, err
	}
	for _, c := range p.Spec.Containers {
		handlers := []handler{c.Readiness, c.Liveness, c.Startup}
		i := slices.IndexFunc(handlers, func(h handler) bool { return h.HTTPGet != nil })
		if i < 0 || handlers[i].HTTPGet.Host == "" && !p.Spec.HostNetwork {
			continue
		}
		if len(probes) == maxProbes {
			return nil, fmt.Errorf("more than %d containers have a probe", maxProbes)
		}
		next, err := c.probe(handlers[i])
		if err != nil {
			return nil, fmt.Errorf("container %s: %w", c.Name, err)
		}
		probes = append(probes, next)
	}
	return probes, nil
}

// probe returns the request of a handler, as the kubelet builds it.
func (c *container) probe(h handler) (probe, error) {
	get := h.HTTPGet
	port, err := c.port(get.Port)
	if err != nil {
		return probe{}, err
	}
	p := probe{container: c.Name, host: get.Host, port: port, header: http.Header{}, timeout: usualTimeout}
	switch scheme := strings.ToLower(cmp.Or(get.Scheme, "http")); scheme {
	case "http", "https":
		p.url.Scheme = scheme
	default:
		return probe{}, errors.New("the scheme of its probe is neither HTTP nor HTTPS")
	}
	if h.TimeoutSeconds > 0 {
		p.timeout = time.Duration(min(h.TimeoutSeconds, int(maxTimeout/time.Second))) * time.Second
	}
	p.url.Path = get.Path
	if parsed, err := url.Parse(get.Path); err == nil {
		p.url.Path, p.url.RawPath, p.url.RawQuery = parsed.Path, parsed.RawPath, parsed.RawQuery
	}
	for _, header := range get.Headers {
		p.header.Add(header.Name, header.Value)
	}
	return p, nil
}

// port returns the number of a port that a probe names.
func (c *container) port(of any) (string, error) {
	number, isNumber := of.(int)
	if name, isName := of.(string); isName {
		for _, port := range c.Ports {
			if port.Name == name {
				number, isNumber = port.ContainerPort, true
				break
			}
		}
		if parsed, err := strconv.Atoi(name); err == nil && !isNumber {
			number, isNumber = parsed, true
		}
	}
	if !isNumber || number < 1 || number > 65535 {
		return "", errors.New("its probe has no port that the container has")
	}
	return strconv.Itoa(number), nil
}

// at returns the URL of the probe at an address.
func (p *probe) at(address string) *url.URL {
	at := p.url
	at.Host = net.JoinHostPort(address, p.port)
	return &at
}

// String returns the probe for people. The query can be a secret.
func (p *probe) String() string {
	at := p.at(cmp.Or(p.host, "localhost"))
	at.RawQuery = ""
	return fmt.Sprintf("container %s: GET %s", p.container, at)
}
