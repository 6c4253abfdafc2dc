// Package fetch fetches a host's configuration from a pointer, as Ignition does, without writing it to a disk. It is
// for tests whose hosts do not boot.
package fetch

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/vincent-petithory/dataurl"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

const (
	// interval is the time between two requests. Ignition waits between 200 ms and 5 s.
	interval = 300 * time.Millisecond
	// timeout is the timeout of a request. The config server answers within ten seconds.
	timeout = 15 * time.Second
)

// Config fetches the configuration of a pointer. It retries while the server answers 5xx, and calls answered with each
// status code. It fetches, verifies and merges all parts. It fails on a status code on which Ignition fails (4xx), on a
// part with a wrong hash, and when ctx is done.
func Config(ctx context.Context, pointer ignition.Pointer, answered func(code int)) (ignition.Config, error) {
	answer, err := persist(ctx, pointer, pointer.URL, answered)
	if err != nil {
		return ignition.Config{}, err
	}
	return follow(ctx, pointer, answer)
}

// persist requests a URL until it succeeds or fails permanently.
func persist(ctx context.Context, pointer ignition.Pointer, url string, answered func(code int)) (answer []byte, err error) {
	err = wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		code, body, err := Get(ctx, pointer, url)
		if err != nil {
			return false, nil //nolint:nilerr // Ignition retries after connection errors
		}
		answered(code)
		if code != http.StatusOK && code < http.StatusInternalServerError {
			return false, fmt.Errorf("%s answered %d: %s", url, code, body)
		}
		answer = body
		return code == http.StatusOK, nil
	})
	return answer, err
}

// follow fetches and merges the parts in an answer of the config server.
func follow(ctx context.Context, pointer ignition.Pointer, answer []byte) (ignition.Config, error) {
	var config ignition.Config
	boot, err := ignition.Parse(answer)
	if err != nil {
		return config, err
	}
	for _, entry := range boot.Ignition.Config.Merge {
		raw, err := contents(ctx, pointer, entry)
		if err != nil {
			return config, err
		}
		part, err := ignition.Parse(raw)
		if err != nil {
			return config, err
		}
		config = ignition.Merge(config, part)
	}
	return config, nil
}

// contents fetches, decompresses and verifies a part.
func contents(ctx context.Context, pointer ignition.Pointer, entry types.Resource) ([]byte, error) {
	var raw []byte
	if strings.HasPrefix(*entry.Source, "data:") {
		decoded, err := dataurl.DecodeString(*entry.Source)
		if err != nil {
			return nil, err
		}
		raw = decoded.Data
	} else {
		body, err := persist(ctx, pointer, *entry.Source, func(int) {})
		if err != nil {
			return nil, err
		}
		raw = body
	}
	if entry.Compression != nil && *entry.Compression == "gzip" {
		var err error
		if raw, err = unzip(raw); err != nil {
			return nil, err
		}
	}
	if hash := entry.Verification.Hash; hash != nil {
		sum := sha512.Sum512(raw)
		if *hash != "sha512-"+hex.EncodeToString(sum[:]) {
			return nil, fmt.Errorf("%s: the hash is wrong", *entry.Source)
		}
	}
	return raw, nil
}

// Get requests a URL with a pointer's token and CA, with a new connection as Ignition does.
func Get(ctx context.Context, pointer ignition.Pointer, url string) (int, []byte, error) {
	return GetFrom(ctx, "", pointer, url)
}

// GetFrom is Get from a source address. "" is any address.
func GetFrom(ctx context.Context, address string, pointer ignition.Pointer, url string) (int, []byte, error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pointer.CA)
	dialer := &net.Dialer{}
	if address != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(address)}
	}
	transport := &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	if pointer.Token != "" {
		request.Header.Set("Authorization", "Bearer "+pointer.Token)
	}
	response, err := (&http.Client{Transport: transport, Timeout: timeout}).Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, body, err
}

// File returns the content of a file in a configuration.
func File(config ignition.Config, path string) (string, error) {
	for _, file := range config.Storage.Files {
		if file.Path != path || file.Contents.Source == nil {
			continue
		}
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
	return "", fmt.Errorf("the configuration has no file %s", path)
}

func unzip(packed []byte) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(reader)
}
