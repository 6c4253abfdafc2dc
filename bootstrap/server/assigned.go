package server

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"sync"

	"k8s.io/utils/lru"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
)

// Assigned is what a running host should run, as the server keeps it. It is immutable. Every host that has joined has
// one, so the document is compressed.
type Assigned struct {
	// Node is the name of the host's Node.
	Node string
	// Configuration is the name of the rendered config, in the namespace of the PoolbootConfig.
	Configuration string

	clientCA *x509.CertPool // verifies client certificates of the Cluster's kubelets; never nil, which would be the host's CAs
	gzip     []byte         // the document
	size     int            // of the document
}

// PackAssignment returns an assignment of a Secret: the document, and the PEM bundle of the CA that verifies the client
// certificates of the Cluster's kubelets.
func PackAssignment(document, clientCA []byte) (*Assigned, error) {
	a, err := assignment.Read(document)
	if err != nil {
		return nil, err
	}
	pool, err := clientCAs.get(clientCA)
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	w := writers.Get().(*gzip.Writer)
	defer writers.Put(w)
	w.Reset(&packed)
	if _, err := w.Write(document); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return &Assigned{Node: a.Node, Configuration: a.Config.Name, clientCA: pool, gzip: bytes.Clone(packed.Bytes()), size: len(document)}, nil
}

// writers are reused, because each has almost 1 MiB, and the server packs all assignments when it starts.
var writers = sync.Pool{New: func() any {
	w, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic(err) // there is such a level
	}
	return w
}}

// document returns the bytes of the document.
func (a *Assigned) document() ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(a.gzip))
	if err != nil {
		return nil, err
	}
	document := make([]byte, a.size)
	_, err = io.ReadFull(reader, document)
	return document, err
}

// maxClientCAs is the maximum number of parsed CA bundles that are shared. Each Cluster has one.
const maxClientCAs = 1024

// clientCAs shares the parsed CA bundle of a Cluster between the assignments of its hosts.
var clientCAs = pools{parsed: lru.New(maxClientCAs)}

type pools struct {
	mu     sync.Mutex
	parsed *lru.Cache // SHA-256 of a bundle → *x509.CertPool, which must not be modified
}

func (p *pools) get(bundle []byte) (*x509.CertPool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := sha256.Sum256(bundle)
	if pool, ok := p.parsed.Get(key); ok {
		return pool.(*x509.CertPool), nil
	}
	pool, err := parseBundle(bundle)
	if err == nil {
		p.parsed.Add(key, pool)
	}
	return pool, err
}

// parseBundle returns the CA certificates of a PEM bundle. Other PEM blocks are skipped, and the headers of blocks are
// ignored, as API servers do. It fails unless all certificates can be parsed and there is at least one.
func parseBundle(bundle []byte) (*x509.CertPool, error) {
	pool, count := x509.NewCertPool(), 0
	for rest := bundle; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("the client CA is malformed: %w", err)
		}
		pool.AddCert(certificate)
		count++
	}
	if count == 0 {
		return nil, errors.New("the client CA has no certificate")
	}
	return pool, nil
}
