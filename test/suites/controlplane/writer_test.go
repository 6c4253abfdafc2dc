package controlplane

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// writeInterval is the time between two writes.
	writeInterval = 100 * time.Millisecond
	// writeTimeout is the time after which a client gives up a request and tries again.
	writeTimeout = time.Second
)

// writer is a client that writes to etcd, through the load balancer and an API server, without a break. It counts in a
// ConfigMap, and tries each write until it is accepted.
type writer struct {
	client.Client
	stop  context.CancelFunc
	ended chan struct{}

	mu        sync.Mutex // guards the fields below
	configMap *corev1.ConfigMap
	accepted  int
	last      time.Time
	pause     time.Duration
	lost      []string
}

// startWriter starts a writer, until Stop or the end of the spec.
func startWriter(ctx context.Context) *writer {
	GinkgoHelper()
	config := rest.CopyConfig(lab.Workload.Config)
	config.Timeout = writeTimeout
	c, err := client.New(config, client.Options{})
	Expect(err).NotTo(HaveOccurred())
	w := &writer{Client: c, ended: make(chan struct{}), configMap: &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: "counter-"}, Data: map[string]string{"count": "0"},
	}}
	Expect(c.Create(ctx, w.configMap)).To(Succeed())
	w.last = time.Now()
	var running context.Context
	running, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	go w.run(running)
	DeferCleanup(w.Stop)
	return w
}

// Stop stops the writer, if it runs.
func (w *writer) Stop() {
	w.stop()
	<-w.ended
}

func (w *writer) run(ctx context.Context) {
	defer close(w.ended)
	ticks := time.NewTicker(writeInterval)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			w.write(ctx)
		}
	}
}

// write writes the next number, or finds out whether a write was accepted that had no answer.
func (w *writer) write(ctx context.Context) {
	next := w.configMap.DeepCopy()
	next.Data["count"] = strconv.Itoa(w.accepted + 1)
	if err := w.Update(ctx, next); err != nil {
		current := w.configMap.DeepCopy()
		if w.Get(ctx, client.ObjectKeyFromObject(current), current) != nil {
			return
		}
		next = current
	}
	w.read(next)
}

// read records an object that the API server has returned.
func (w *writer) read(object *corev1.ConfigMap) {
	w.mu.Lock()
	defer w.mu.Unlock()
	count, err := strconv.Atoi(object.Data["count"])
	if err != nil || count < w.accepted {
		w.lost = append(w.lost, fmt.Sprintf("%s: %d was accepted, and then the count was %q", time.Now().Format(time.TimeOnly), w.accepted, object.Data["count"]))
	}
	w.configMap = object
	if count > w.accepted {
		w.accepted = count
		w.pause = max(w.pause, time.Since(w.last))
		w.last = time.Now()
	}
}

// Pause returns the longest time between two accepted writes, and from the last one until now.
func (w *writer) Pause() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(w.pause, time.Since(w.last))
}

// expectNothingLost stops the writer, and expects each API server's answer to be the last accepted write. It returns
// the number of writes and the longest pause.
func (w *writer) expectNothingLost(ctx context.Context) (writes int, pause time.Duration) {
	GinkgoHelper()
	w.Stop()
	pause = w.Pause()
	for range 2 * planeHosts { // the load balancer chooses one for each connection
		config := rest.CopyConfig(lab.Workload.Config)
		config.Dial = (&net.Dialer{}).DialContext // no connection is shared
		c, err := client.New(config, client.Options{})
		Expect(err).NotTo(HaveOccurred())
		current := &corev1.ConfigMap{}
		Expect(c.Get(ctx, client.ObjectKeyFromObject(w.configMap), current)).To(Succeed())
		w.read(current)
	}
	Expect(w.lost).To(BeEmpty())
	return w.accepted, pause
}
