package staticpods

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestStaticPods(t *testing.T) {
	RegisterFailHandler(Fail)
	lookInterval = 10 * time.Millisecond
	RunSpecs(t, "Static Pods")
}

// host is a host in a directory.
type host struct {
	Host
	directory string
}

func newHost() *host {
	GinkgoHelper()
	h := &host{directory: GinkgoT().TempDir()}
	root, err := os.OpenRoot(h.directory)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(root.Close)
	h.Root = root
	return h
}

func (h *host) path(name string) string { return filepath.Join(h.directory, name) }

func (h *host) write(name, contents string) {
	GinkgoHelper()
	Expect(os.MkdirAll(filepath.Dir(h.path(name)), 0o755)).To(Succeed())
	Expect(os.WriteFile(h.path(name), []byte(contents), 0o600)).To(Succeed())
}

// serve returns the port of a server.
func serve(newServer func(http.Handler) *httptest.Server, handler http.HandlerFunc) string {
	GinkgoHelper()
	server := newServer(handler)
	DeferCleanup(server.Close)
	DeferCleanup(server.CloseClientConnections)
	return server.URL[len(server.URL)-len("12345"):]
}
