package faults

import (
	"crypto/tls"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// probeInterval is the interval of readiness probes. It is a tenth of the shortest interval of a kubelet.
	probeInterval = 100 * time.Millisecond
	// probeTimeout is the timeout of a readiness probe.
	probeTimeout = time.Second
	// maxUnanswered is the number of probes without an answer after which a backend counts as dead.
	maxUnanswered = 3
)

// Service forwards each TCP connection to a random ready backend, as a Kubernetes Service does. As a load balancer in
// front of hosts, it closes the connections to a dead backend.
type Service struct {
	listener net.Listener
	probes   *http.Client
	stop     chan struct{}

	mu          sync.Mutex
	ready       map[string]bool                  // address → whether its last probe succeeded
	connections map[string]map[net.Conn]struct{} // address → connections to it
}

// Serve starts a Service at an address.
func Serve(address string) (*Service, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	unverified := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // a probe sends no secret
	s := &Service{
		listener: listener, probes: &http.Client{Timeout: probeTimeout, Transport: unverified}, stop: make(chan struct{}),
		ready: map[string]bool{}, connections: map[string]map[net.Conn]struct{}{},
	}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go s.forward(connection)
		}
	}()
	return s, nil
}

// Add adds a backend, which is ready while a GET of its readiness URL returns 200.
func (s *Service) Add(address, readiness string) {
	go func() {
		probes, unanswered := time.NewTicker(probeInterval), 0
		defer probes.Stop()
		for {
			answer, err := s.probes.Get(readiness)
			unanswered++
			if err == nil {
				_ = answer.Body.Close()
				unanswered = 0
			}
			s.probed(address, err == nil && answer.StatusCode == http.StatusOK, unanswered == maxUnanswered)
			select {
			case <-probes.C:
			case <-s.stop:
				return
			}
		}
	}()
}

// probed records the result of a probe, and closes the connections to a backend that is dead.
func (s *Service) probed(address string, ready, dead bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready[address] = ready
	if dead {
		for connection := range s.connections[address] {
			_ = connection.Close()
		}
	}
}

// Ready returns the number of ready backends.
func (s *Service) Ready() int { return len(s.backends()) }

func (s *Service) backends() (ready []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for address, ok := range s.ready {
		if ok {
			ready = append(ready, address)
		}
	}
	return ready
}

// Stop stops accepting connections. Forwarded connections stay open.
func (s *Service) Stop() error {
	close(s.stop)
	return s.listener.Close()
}

func (s *Service) forward(host net.Conn) {
	defer host.Close()
	ready := s.backends()
	if len(ready) == 0 {
		return
	}
	address := ready[rand.IntN(len(ready))]
	backend, err := net.DialTimeout("tcp", address, probeTimeout)
	if err != nil {
		return
	}
	defer backend.Close()
	s.track(address, backend, true)
	defer s.track(address, backend, false)
	go func() {
		_, _ = io.Copy(backend, host)
		_ = backend.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(host, backend)
}

// track records that a connection to a backend is open or closed.
func (s *Service) track(address string, connection net.Conn, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !open {
		delete(s.connections[address], connection)
		return
	}
	if s.connections[address] == nil {
		s.connections[address] = map[net.Conn]struct{}{}
	}
	s.connections[address][connection] = struct{}{}
}
