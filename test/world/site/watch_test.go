package site

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestSite(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Site")
}

var _ = Describe("Follow", func() {
	var (
		server *storage
		events chan string
	)
	BeforeEach(func(ctx SpecContext) {
		server, events = &storage{}, make(chan string, 100)
		server.write(watch.Added, "a", "1")
		server.write(watch.Added, "b", "2")
		running, end := context.WithCancel(context.WithoutCancel(ctx))
		DeferCleanup(end)
		Expect(Follow(running, server, &corev1.NodeList{}, func(kind watch.EventType, node *corev1.Node) {
			events <- fmt.Sprint(kind, " ", node.Name, "@", node.ResourceVersion)
		})).To(Succeed())
		server.write(watch.Modified, "a", "1")
		Eventually(ctx, events).Should(Receive(Equal("MODIFIED a@3")))
	})
	next := func(ctx context.Context, expected ...string) {
		GinkgoHelper()
		for _, event := range expected {
			Eventually(ctx, events).WithTimeout(10 * time.Second).Should(Receive(Equal(event)))
		}
		Consistently(events).ShouldNot(Receive())
	}

	It("delivers the versions before a restart of the API server that its watch has missed, in their order", func(ctx SpecContext) {
		server.restart(func() {
			server.write(watch.Modified, "a", "1")
			server.write(watch.Modified, "b", "2")
			server.write(watch.Added, "c", "3")
			server.write(watch.Modified, "a", "1")
			server.write(watch.Modified, "c", "3")
		})
		next(ctx, "MODIFIED a@4", "MODIFIED b@5", "ADDED c@6", "MODIFIED a@7", "MODIFIED c@8")
		server.write(watch.Modified, "b", "2")
		next(ctx, "MODIFIED b@10")
	})

	It("delivers nothing twice after a restart without writes", func(ctx SpecContext) {
		server.restart(func() {})
		server.write(watch.Modified, "b", "2")
		next(ctx, "MODIFIED b@5")
	})

	It("reports a gap if the missed versions were compacted", func(ctx SpecContext) {
		server.restart(func() {
			for range 3 {
				server.write(watch.Modified, "a", "1")
			}
			server.compact(5)
		})
		next(ctx, "GAP a@5", "MODIFIED a@6")
	})

	It("reports a gap for an object that was deleted", func(ctx SpecContext) {
		server.restart(func() { server.write(watch.Deleted, "a", "1") })
		next(ctx, "GAP a@3", "DELETED a@3")
	})

	It("reports a gap for an object that was deleted and created again", func(ctx SpecContext) {
		server.restart(func() {
			server.write(watch.Deleted, "a", "1")
			server.write(watch.Added, "a", "4")
			server.write(watch.Modified, "a", "4")
		})
		next(ctx, "GAP a@5", "MODIFIED a@6")
	})
})

// storage is an API server with Nodes. Their resource versions are the revisions at which they were written.
type storage struct {
	client.WithWatch // panics if another method is called

	mu      sync.Mutex
	history []watch.Event // the event of revision i+1
	// compacted is the first revision that can be listed, oldest the first from which can be watched.
	compacted, oldest int
	watches           []*watch.RaceFreeFakeWatcher
	isDown            bool
}

func (s *storage) write(kind watch.EventType, name string, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid, ResourceVersion: strconv.Itoa(len(s.history) + 1)}}
	s.history = append(s.history, watch.Event{Type: kind, Object: node})
	for _, w := range s.watches {
		w.Action(kind, node)
	}
}

// restart ends all watches and then writes, which they miss, also another kind. The API server then has only later
// events.
func (s *storage) restart(writes func()) {
	s.mu.Lock()
	watches := s.watches
	s.watches, s.isDown = nil, true
	s.mu.Unlock()
	for _, w := range watches {
		w.Stop()
	}
	writes()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history = append(s.history, watch.Event{Type: watch.Bookmark})
	s.oldest, s.isDown = len(s.history), false
}

func (s *storage) compact(revision int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compacted = revision
}

func (s *storage) Watch(_ context.Context, _ client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.revision(options)
	w := watch.NewRaceFreeFake()
	switch {
	case s.isDown:
		return nil, apierrors.NewServiceUnavailable("restarting")
	case from < s.oldest:
		gone := apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", from, s.oldest)).Status()
		w.Error(&gone)
		return w, nil
	}
	for _, event := range s.history[from:] {
		w.Action(event.Type, event.Object)
	}
	s.watches = append(s.watches, w)
	return w, nil
}

func (s *storage) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	revision := s.revision(options)
	if s.isDown {
		return apierrors.NewServiceUnavailable("restarting")
	}
	if revision < s.compacted {
		return apierrors.NewResourceExpired("compacted")
	}
	var only string
	all := client.ListOptions{}
	if all.ApplyOptions(options).FieldSelector != nil {
		only, _ = all.FieldSelector.RequiresExactMatch(metav1.ObjectNameField)
	}
	nodes := map[string]corev1.Node{}
	for _, event := range s.history[:revision] {
		switch node, ok := event.Object.(*corev1.Node); {
		case !ok || only != "" && node.Name != only:
		case event.Type == watch.Deleted:
			delete(nodes, node.Name)
		default:
			nodes[node.Name] = *node
		}
	}
	list := into.(*corev1.NodeList)
	list.Items, list.ResourceVersion = slices.Collect(maps.Values(nodes)), strconv.Itoa(revision)
	return nil
}

// revision returns the revision of a request, by default the current one.
func (s *storage) revision(options []client.ListOption) int {
	all := client.ListOptions{}
	if raw := all.ApplyOptions(options).Raw; raw != nil && raw.ResourceVersion != "" {
		n, err := strconv.Atoi(raw.ResourceVersion)
		Expect(err).NotTo(HaveOccurred())
		return n
	}
	return len(s.history)
}
