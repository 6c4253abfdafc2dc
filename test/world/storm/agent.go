package storm

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
)

// Unkindness is what happens to the hosts of a fleet. The zero value is a fleet in which nothing goes wrong.
type Unkindness struct {
	// Life is the mean time after which an agent is killed. It starts again within a second or two, with its journal.
	Life time.Duration
	// Uptime is the mean time after which the kubelet of a host fails for a few seconds, with or without an update.
	Uptime time.Duration
	// Failures is the share of updates that fail and are undone.
	Failures float64
	// Reboot is the mean time of a reboot, 900 ms if it is zero. That of a server takes minutes.
	Reboot time.Duration
}

// reboot returns how long a reboot takes.
func (u Unkindness) reboot() time.Duration {
	mean := cmp.Or(u.Reboot, 900*time.Millisecond)
	return between(mean/3, mean*5/3)
}

// agent acts on its Node, and with the config server, as the agent of a host does whose updates reboot. It has no disk:
// what the journal of an agent has is in its fields. These survive when it is killed, and what it was about to report
// does not.
type agent struct {
	kubelet    *kubelet
	clients    *kubernetes.Clientset
	server     *http.Client
	unkindness Unkindness

	// journal is what survives a kill.
	journal struct {
		phase           agentv1.State
		current, target string
		failed, why     string
		minReady        time.Duration
	}

	mu     sync.Mutex
	node   *corev1.Node // what the watch saw last, nil while it is not known
	seen   chan struct{}
	status sync.Mutex // the kubelet writes its status alone
}

// newAgent returns the agent of a host whose kubelet has joined.
func newAgent(k *kubelet, unkindness Unkindness) (*agent, error) {
	clients, _, err := connect(k.own)
	if err != nil {
		return nil, err
	}
	certificate, err := tls.X509KeyPair(k.own.CertData, k.own.KeyData)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(k.settings.CA))
	a := &agent{kubelet: k, clients: clients, unkindness: unkindness, seen: make(chan struct{})}
	a.server = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}}}
	return a, nil
}

// run runs the host until ctx is done.
func (a *agent) run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { a.watch(ctx) })
	if a.unkindness.Uptime > 0 {
		running.Go(func() {
			for pause(ctx, lasts(a.unkindness.Uptime)) {
				a.goAway(ctx, between(time.Second, 4*time.Second))
			}
		})
	}
	for ctx.Err() == nil {
		life, end := ctx, context.CancelFunc(func() {})
		if a.unkindness.Life > 0 {
			life, end = context.WithTimeout(ctx, lasts(a.unkindness.Life))
		}
		for life.Err() == nil {
			if err := a.step(ctx, life); err != nil {
				pause(life, between(200*time.Millisecond, 2*time.Second))
			}
		}
		end()
		pause(ctx, between(100*time.Millisecond, 2*time.Second))
	}
	running.Wait()
}

// watch keeps what the agent knows of its Node. It tries again as a reflector does: ever later, up to half a minute.
func (a *agent) watch(ctx context.Context) {
	nodes := a.clients.CoreV1().Nodes()
	later := time.Second
	for ctx.Err() == nil {
		node, err := nodes.Get(ctx, a.kubelet.name, metav1.GetOptions{})
		if err == nil {
			a.see(node)
			var events watch.Interface
			events, err = nodes.Watch(ctx, metav1.ListOptions{
				FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, a.kubelet.name).String(), ResourceVersion: node.ResourceVersion})
			if err == nil {
				later = time.Second
				for event := range events.ResultChan() {
					if node, ok := event.Object.(*corev1.Node); ok && event.Type != watch.Deleted {
						a.see(node)
					}
				}
			}
		}
		pause(ctx, between(later/5, 2*later))
		later = min(2*later, 15*time.Second)
	}
}

func (a *agent) see(node *corev1.Node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.node = node
	close(a.seen)
	a.seen = make(chan struct{})
}

// await waits for a Node that a condition holds for.
func (a *agent) await(ctx context.Context, holds func(*corev1.Node) bool) (*corev1.Node, error) {
	for {
		a.mu.Lock()
		node, seen := a.node, a.seen
		a.mu.Unlock()
		if node != nil && holds(node) {
			return node, nil
		}
		select {
		case <-seen:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func desired(node *corev1.Node) string { return node.Annotations[agentv1.DesiredAnnotation] }

// step does one transition, and reports it. It is interrupted at any point when ctx is done. A host that reboots goes
// on without its agent, until the host stops.
func (a *agent) step(host, ctx context.Context) error {
	j := &a.journal
	if err := a.report(ctx); err != nil {
		return err
	}
	switch j.phase {
	case "": // nothing was adopted yet
		node, err := a.await(ctx, func(node *corev1.Node) bool { return desired(node) != "" })
		if err != nil {
			return err
		}
		if _, err := a.assignment(ctx, desired(node)); err != nil {
			return err
		}
		j.current, j.target, j.phase = desired(node), desired(node), agentv1.Done
	case agentv1.Done, agentv1.Degraded:
		node, err := a.await(ctx, func(node *corev1.Node) bool {
			to := desired(node)
			return to != "" && to != j.failed && (to != j.current || j.phase == agentv1.Degraded)
		})
		if err != nil {
			return err
		}
		to := desired(node)
		if to == j.current { // a failed update was withdrawn
			j.failed, j.why, j.target, j.phase = "", "", to, agentv1.Done
			break
		}
		assigned, err := a.assignment(ctx, to)
		if err != nil {
			return err
		}
		j.failed, j.why, j.target, j.minReady, j.phase = "", "", to, assigned.MinReady(), agentv1.Draining
	case agentv1.Draining:
		node, err := a.await(ctx, func(node *corev1.Node) bool {
			return node.Annotations[agentv1.DrainedAnnotation] == j.target || desired(node) != j.target
		})
		if err != nil {
			return err
		}
		if desired(node) != j.target { // superseded: nothing was changed yet
			j.target, j.phase = j.current, agentv1.Done
			break
		}
		j.phase = agentv1.Applying
	case agentv1.Applying:
		if !pause(ctx, between(50*time.Millisecond, 300*time.Millisecond)) {
			return ctx.Err()
		}
		j.phase = agentv1.Rebooting
	case agentv1.Rebooting:
		a.goAway(host, a.unkindness.reboot())
		j.phase = agentv1.Verifying
	case agentv1.Verifying:
		a.verify(host, ctx)
	}
	return ctx.Err()
}

// verify commits or undoes an update. An undone update reboots once more.
func (a *agent) verify(host, ctx context.Context) {
	j := &a.journal
	if !pause(ctx, j.minReady) {
		return
	}
	if rand.Float64() < a.unkindness.Failures {
		a.goAway(host, a.unkindness.reboot())
		j.failed, j.why, j.phase = j.target, "the simulated host does not like it", agentv1.Degraded
		return
	}
	if _, err := a.await(ctx, isReady); err == nil {
		j.current, j.phase = j.target, agentv1.Done
	}
}

func isReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// goAway makes the Node not Ready for some time. Both writes are repeated until the API server has them.
func (a *agent) goAway(ctx context.Context, away time.Duration) {
	a.status.Lock()
	defer a.status.Unlock()
	set := func(status corev1.ConditionStatus) {
		for range 200 {
			node, err := a.clients.CoreV1().Nodes().Get(ctx, a.kubelet.name, metav1.GetOptions{})
			if err == nil && updateStatus(ctx, a.clients, node, ready(status)) == nil || ctx.Err() != nil {
				return
			}
			pause(ctx, between(100*time.Millisecond, 500*time.Millisecond))
		}
	}
	set(corev1.ConditionFalse)
	pause(ctx, away)
	set(corev1.ConditionTrue)
}

// report writes what the journal says to the Node, unless the Node has it.
func (a *agent) report(ctx context.Context) error {
	j := &a.journal
	node, err := a.await(ctx, func(*corev1.Node) bool { return true })
	if err != nil {
		return err
	}
	want := map[string]string{agentv1.ReportVersionAnnotation: "1", agentv1.AgentAnnotation: "v0.1.0"}
	if j.phase != "" {
		want[agentv1.CurrentAnnotation], want[agentv1.TargetAnnotation], want[agentv1.StateAnnotation] = j.current, j.target, string(j.phase)
		want[agentv1.ReasonAnnotation] = j.why
		if j.phase != agentv1.Done {
			want[agentv1.EffectAnnotation] = j.target + " Reboot"
		}
	}
	changed := map[string]string{}
	for name, value := range want {
		if node.Annotations[name] != value {
			changed[name] = value
		}
	}
	if len(changed) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": changed}})
	if err != nil {
		return err
	}
	_, err = a.clients.CoreV1().Nodes().Patch(ctx, a.kubelet.name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// assignment downloads the assignment of a revision, with the client certificate of the kubelet.
func (a *agent) assignment(ctx context.Context, revision string) (assignment.Assignment, error) {
	address, err := a.kubelet.settings.UpdateURL()
	if err != nil {
		return assignment.Assignment{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return assignment.Assignment{}, err
	}
	response, err := a.server.Do(request)
	if err != nil {
		return assignment.Assignment{}, err
	}
	document, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return assignment.Assignment{}, err
	}
	if response.StatusCode != http.StatusOK {
		return assignment.Assignment{}, fmt.Errorf("%s: %s", response.Status, document)
	}
	return assignment.Decode(document, revision)
}

// pause waits, and reports false if ctx ended before.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// between returns a random duration, and lasts one with a mean, as the time between independent events.
func between(least, most time.Duration) time.Duration { return least + rand.N(most-least) }

func lasts(mean time.Duration) time.Duration {
	return time.Duration(rand.ExpFloat64() * float64(mean))
}
