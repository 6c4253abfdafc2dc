package integration

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/vincent-petithory/dataurl"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// askingHosts are servers that ask for their configuration as Ignition does, again and again until they have it, and then
// do nothing: their kubelets never come.
type askingHosts struct {
	mu    sync.Mutex
	hosts map[client.ObjectKey]*askingHost
}

// askingHost is one of them.
type askingHost struct {
	mu       sync.Mutex
	cancel   context.CancelFunc
	userData []byte
	codes    []int           // what the config server answered, in order
	config   ignition.Config // the whole configuration, merged
	done     bool
}

func newAskingHosts() *askingHosts {
	return &askingHosts{hosts: map[client.ObjectKey]*askingHost{}}
}

func (h *askingHosts) of(key client.ObjectKey) *askingHost {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hosts[key] == nil {
		h.hosts[key] = &askingHost{}
	}
	return h.hosts[key]
}

// PowerOn lets the host behind a BareMetalHost ask.
func (h *askingHosts) PowerOn(_ context.Context, bmh *bmov1alpha1.BareMetalHost, userData []byte) error {
	host := h.of(client.ObjectKeyFromObject(bmh))
	host.mu.Lock()
	defer host.mu.Unlock()
	if userData == nil || bytes.Equal(userData, host.userData) {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	host.cancel, host.userData, host.codes, host.done = cancel, userData, nil, false
	go host.ask(ctx, userData)
	return nil
}

// PowerOff silences the host behind a BareMetalHost.
func (h *askingHosts) PowerOff(_ context.Context, bmh *bmov1alpha1.BareMetalHost) error {
	host := h.of(client.ObjectKeyFromObject(bmh))
	host.mu.Lock()
	defer host.mu.Unlock()
	if host.cancel != nil {
		host.cancel()
	}
	host.userData = nil
	return nil
}

// answered returns every status code so far.
func (h *askingHost) answered() []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]int(nil), h.codes...)
}

// got returns the whole configuration once the host has it.
func (h *askingHost) got() (ignition.Config, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.done {
		return ignition.Config{}, fmt.Errorf("the host has no configuration yet; answers so far: %v", h.codes)
	}
	return h.config, nil
}

// file returns a file of the configuration as it would be on disk.
func (h *askingHost) file(path string) (string, error) {
	config, err := h.got()
	if err != nil {
		return "", err
	}
	for _, file := range config.Storage.Files {
		if file.Path == path && file.Contents.Source != nil {
			content, err := dataurl.DecodeString(*file.Contents.Source)
			if err != nil {
				return "", err
			}
			if file.Contents.Compression != nil && *file.Contents.Compression == "gzip" {
				unpacked, err := unzip(content.Data)
				return string(unpacked), err
			}
			return string(content.Data), nil
		}
	}
	return "", fmt.Errorf("the configuration has no file %s", path)
}

// ask follows a pointer until the host has everything or is told that it never will.
func (h *askingHost) ask(ctx context.Context, userData []byte) {
	pointer, err := ignition.ParsePointer(userData)
	if err != nil {
		return // configSource.inline: nothing to ask for.
	}
	answer, err := h.download(ctx, pointer)
	if err != nil {
		return
	}
	config, err := follow(ctx, pointer, answer)
	if err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.config, h.done = config, true
}

// download asks until the answer is no longer that it is too early.
func (h *askingHost) download(ctx context.Context, pointer ignition.Pointer) (answer []byte, err error) {
	err = wait.PollUntilContextCancel(ctx, 300*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		code, body, err := get(ctx, pointer, pointer.URL)
		if err != nil {
			return false, nil //nolint:nilerr // Ignition asks again after any error of the connection.
		}
		h.mu.Lock()
		h.codes = append(h.codes, code)
		h.mu.Unlock()
		switch {
		case code == http.StatusOK:
			answer = body
			return true, nil
		case code < http.StatusInternalServerError:
			return false, fmt.Errorf("answered %d", code)
		}
		return false, nil
	})
	return answer, err
}

// follow downloads what an answer of the config server points at, checks it and merges everything.
func follow(ctx context.Context, pointer ignition.Pointer, answer []byte) (ignition.Config, error) {
	var config ignition.Config
	boot, err := ignition.Parse(answer)
	if err != nil {
		return config, err
	}
	for _, entry := range boot.Ignition.Config.Merge {
		var raw []byte
		if strings.HasPrefix(*entry.Source, "data:") {
			decoded, err := dataurl.DecodeString(*entry.Source)
			if err != nil {
				return config, err
			}
			raw = decoded.Data
		} else {
			code, body, err := get(ctx, pointer, *entry.Source)
			if err != nil || code != http.StatusOK {
				return config, fmt.Errorf("%s: %d %w", *entry.Source, code, err)
			}
			raw = body
		}
		if entry.Compression != nil && *entry.Compression == "gzip" {
			if raw, err = unzip(raw); err != nil {
				return config, err
			}
		}
		if hash := entry.Verification.Hash; hash != nil {
			sum := sha512.Sum512(raw)
			if *hash != "sha512-"+hex.EncodeToString(sum[:]) {
				return config, errors.New("the hash is wrong")
			}
		}
		part, err := ignition.Parse(raw)
		if err != nil {
			return config, err
		}
		config = ignition.Merge(config, part)
	}
	return config, nil
}

func unzip(packed []byte) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(reader)
}

// get asks for a URL with a pointer's token and its CA, over a connection of its own as Ignition does.
func get(ctx context.Context, pointer ignition.Pointer, url string) (int, []byte, error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pointer.CA)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	if pointer.Token != "" {
		request.Header.Set("Authorization", "Bearer "+pointer.Token)
	}
	response, err := (&http.Client{Transport: transport, Timeout: 15 * time.Second}).Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, body, err
}
