package faults

import (
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// probeInterval is how often a Service's backends are asked whether they are ready: ten times as often as a kubelet
	// does at its most eager.
	probeInterval = 100 * time.Millisecond
	// probeTimeout is how long one of them may take to answer.
	probeTimeout = time.Second
)

// Service forwards TCP connections to those of some backends that are ready, each to one of them by chance: a
// Kubernetes Service of several Pods.
type Service struct {
	listener net.Listener
	probes   *http.Client
	stop     chan struct{}

	mu    sync.Mutex
	ready map[string]bool // address → whether its last probe went well
}

// Serve starts a Service at an address.
func Serve(address string) (*Service, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	s := &Service{listener: listener, probes: &http.Client{Timeout: probeTimeout}, stop: make(chan struct{}), ready: map[string]bool{}}
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

// Add adds a backend, which is ready while a GET of its readiness URL is answered 200.
func (s *Service) Add(address, readiness string) {
	go func() {
		probes := time.NewTicker(probeInterval)
		defer probes.Stop()
		for {
			answer, err := s.probes.Get(readiness)
			if err == nil {
				_ = answer.Body.Close()
			}
			s.mu.Lock()
			s.ready[address] = err == nil && answer.StatusCode == http.StatusOK
			s.mu.Unlock()
			select {
			case <-probes.C:
			case <-s.stop:
				return
			}
		}
	}()
}

// Ready is how many backends are ready.
func (s *Service) Ready() int { return len(s.backends()) }

func (s *Service) backends() (ready []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for address, is := range s.ready {
		if is {
			ready = append(ready, address)
		}
	}
	return ready
}

// Stop ends the Service. Connections that are forwarded go on.
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
	backend, err := net.Dial("tcp", ready[rand.IntN(len(ready))])
	if err != nil {
		return
	}
	defer backend.Close()
	go func() {
		_, _ = io.Copy(backend, host)
		_ = backend.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(host, backend)
}
