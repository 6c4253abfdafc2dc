package bench

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/loopback"
)

// assigned is the assignment of a running host.
type assigned struct{ *server.Assigned }

func (a assigned) Get(context.Context, types.UID) (*server.Assigned, error) {
	return a.Assigned, nil
}

// newAssigned returns an assignment for the Node edge-7, with 16 KiB of the machine's own part, and its document.
func newAssigned(clientCA []byte) (assigned, []byte, error) {
	machine, err := json.Marshal(map[string]any{"ignition": map[string]string{"version": "3.5.0"}, "of": strings.Repeat("some text of the machine's own part ", 455)})
	if err != nil {
		return assigned{}, nil, err
	}
	document, err := assignment.Encode(assignment.Assignment{
		Node: "edge-7", Config: assignment.RenderedConfig{Name: "rendered-infra-0", SHA512: strings.Repeat("a", 128)},
		Machine: machine, Policy: update.DefaultPolicy(), MinReadySeconds: 10, ReadyDeadlineSeconds: 1200,
	})
	if err != nil {
		return assigned{}, nil, err
	}
	packed, err := server.PackAssignment(document, clientCA)
	return assigned{packed}, document, err
}

// BenchmarkUpdate compares the request of a running host for what it should run, with a client certificate, to the
// request of a host that boots, with a token: on one connection, and on a new connection each. Client and server share
// the process. "x-peer" is the ratio of an update request to a boot request.
func BenchmarkUpdate(b *testing.B) {
	clientCA, err := loopback.NewCA("cluster")
	if err != nil {
		b.Fatal(err)
	}
	assigned, document, err := newAssigned(clientCA.PEM())
	if err != nil {
		b.Fatal(err)
	}
	pair, err := clientCA.Client("system:node:edge-7", "system:nodes")
	if err != nil {
		b.Fatal(err)
	}
	kubelet, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		b.Fatal(err)
	}
	machine, err := newMachine(defaultLoad)
	if err != nil {
		b.Fatal(err)
	}
	address := listen(b, server.New(server.Options{
		ExternalURL: &url.URL{Scheme: "https", Host: "config-server.example:8443"},
		Sources:     server.Sources{Records: machine, Overlays: machineOverlay{machine}, Assignments: assigned},
		Rendered:    machineConfig{machine}, Boots: machine, Wait: time.Nanosecond,
		Metrics: server.NewMetrics(prometheus.NewRegistry()), Log: logr.Discard(), Ready: func() error { return nil },
	}))
	for name, keep := range map[string]bool{"kept-alive": true, "new-connection": false} {
		b.Run(name, func(b *testing.B) {
			running, booting := newHostClient(keep, authority().PEM()), newHostClient(keep, authority().PEM())
			running.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{kubelet}
			defer running.CloseIdleConnections()
			defer booting.CloseIdleConnections()
			size := 0
			compare(b, func() error {
				body, err := requestAsKubelet(running, address+"/update/default/0/"+benchPointer)
				if err == nil && !bytes.Equal(body, document) {
					err = errors.New("the answer to the update request is another document")
				}
				return err
			}, func() error {
				body, err := request(booting, address+configPath("0"))
				size = len(body)
				return err
			})
			b.ReportMetric(float64(len(document)), "bytes/answer")
			b.ReportMetric(float64(size), "peer-bytes/answer")
		})
	}
}

// requestAsKubelet sends a request without a token.
func requestAsKubelet(host *http.Client, target string) ([]byte, error) {
	response, err := host.Get(target)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", target, response.Status, body)
	}
	return body, errors.Join(err, response.Body.Close())
}

// BenchmarkAssignments measures how long the server needs to read the assignments of 1,000 running hosts when it
// starts.
func BenchmarkAssignments(b *testing.B) {
	clientCA, err := loopback.NewCA("cluster")
	if err != nil {
		b.Fatal(err)
	}
	_, document, err := newAssigned(clientCA.PEM())
	if err != nil {
		b.Fatal(err)
	}
	const hosts = 1000
	for b.Loop() {
		for range hosts {
			if _, err := server.PackAssignment(document, clientCA.PEM()); err != nil {
				b.Fatal(err)
			}
		}
	}
}
