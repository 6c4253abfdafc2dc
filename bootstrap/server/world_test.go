package server_test

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

const (
	pointerID = "0a6bd5b5-3d3c-4b66-8f0e-3c5f6a4f7f51"
	token     = "a-token-that-nobody-guesses"
	// secretInOverlay represents a join credential.
	secretInOverlay = "abcdef.0123456789abcdef"
	overlayJSON     = `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/poolboot/kubelet.env","contents":{"source":"data:,` + secretInOverlay + `"}}]}}`
)

// machine0 is the PoolbootConfig of most hosts in these tests.
var machine0 = types.NamespacedName{Namespace: "default", Name: "machine-0"}

// boundTo returns the recorded hash of a token of the PoolbootConfig default/<name>.
func boundTo(name, token string) string {
	return access.Config(types.NamespacedName{Namespace: "default", Name: name}, types.UID(name)).Hash(token)
}

// world is the management cluster, in memory.
type world struct {
	mu                 sync.Mutex
	records            map[string]*server.Record // by name, in the namespace default
	overlays           map[types.UID]server.Overlay
	rendered           map[types.NamespacedName]*server.PoolBytes
	enrolled           map[types.NamespacedName]*server.Enrollment
	assigned           map[types.UID]*server.Assigned
	assignmentReads    int
	assignmentErr      error
	registrations      []time.Time // writes of RecordRegistrationRequest
	onRegistration     func(at time.Time)
	admissionNames     []string // names of hosts that requested to be admitted
	onAdmissionRequest func(name, address string)
	admissionErr       error
	recordReads        int // reads of records
	renderedReadCount  int // reads of rendered configs
	onRead             func()
	readErr            error
	version            int
	requested          []time.Time
	served             []time.Time
	addressWrites      int // writes of RecordAddress
	reported           []server.IgnitionFailure
	writeErr           error
	failed             int  // failed writes of RecordServed
	stuck              bool // writes block until their timeout
	onRequest          func()
}

func newWorld() *world {
	return &world{
		records:  map[string]*server.Record{},
		overlays: map[types.UID]server.Overlay{},
		rendered: map[types.NamespacedName]*server.PoolBytes{},
		enrolled: map[types.NamespacedName]*server.Enrollment{},
		assigned: map[types.UID]*server.Assigned{},
	}
}

func (w *world) Get(ctx context.Context, name types.NamespacedName) (*server.Record, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.recordReads++
	record, ok := w.records[name.Name]
	if !ok || record.NamespacedName != name {
		return nil, ctx.Err()
	}
	found := *record
	return &found, ctx.Err()
}

type overlaysOf struct{ *world }

func (w overlaysOf) Get(ctx context.Context, config types.UID) (*server.Overlay, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if overlay, ok := w.overlays[config]; ok {
		return &overlay, ctx.Err()
	}
	return nil, ctx.Err()
}

type assignmentsOf struct{ *world }

func (w assignmentsOf) Get(ctx context.Context, config types.UID) (*server.Assigned, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.assignmentReads++
	if w.assignmentErr != nil {
		return nil, w.assignmentErr
	}
	return w.assigned[config], ctx.Err()
}

type renderedOf struct{ *world }

func (w renderedOf) Get(_ context.Context, name types.NamespacedName) (*server.PoolBytes, error) {
	w.mu.Lock()
	w.renderedReadCount++
	hook, rendered, err := w.onRead, w.rendered[name], w.readErr
	w.mu.Unlock()
	if hook != nil {
		hook()
	}
	return rendered, err
}

func (w *world) RecordRequest(ctx context.Context, record server.Record, from netip.Addr, at time.Time) error {
	w.mu.Lock()
	err, hook, stuck := w.writeErr, w.onRequest, w.stuck
	if err == nil {
		w.requested = append(w.requested, at)
		w.addAddress(record, from)
	}
	w.mu.Unlock()
	if stuck {
		<-ctx.Done()
		return ctx.Err()
	}
	if err == nil && hook != nil {
		hook()
	}
	return err
}

func (w *world) RecordAddress(_ context.Context, record server.Record, from netip.Addr, _ time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.writeErr == nil {
		w.addressWrites++
		w.addAddress(record, from)
	}
	return w.writeErr
}

// addAddress adds an address to the record. The caller holds the lock.
func (w *world) addAddress(record server.Record, from netip.Addr) {
	if recorded := w.records[record.Name]; recorded != nil && from.IsValid() {
		recorded.Addresses = append(slices.Clip(recorded.Addresses), from)
	}
}

func (w *world) RecordServed(_ context.Context, _ server.Record, at time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.writeErr != nil {
		w.failed++
		return w.writeErr
	}
	w.served = append(w.served, at)
	return nil
}

func (w *world) RecordRegistrationRequest(_ context.Context, record server.Record, at time.Time) error {
	w.mu.Lock()
	err, hook := w.writeErr, w.onRegistration
	w.registrations = append(w.registrations, at)
	if err == nil {
		w.records[record.Name].RegistrationRequestedTime = at
	}
	w.mu.Unlock()
	if err == nil && hook != nil {
		hook(at)
	}
	return err
}

func (w *world) RecordFailure(_ context.Context, record server.Record, failure server.IgnitionFailure, at time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.writeErr == nil {
		w.reported = append(w.reported, failure)
		w.records[record.Name].FailedTime = at
	}
	return w.writeErr
}

func (w *world) reports() []server.IgnitionFailure {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.reported)
}

func (w *world) requests() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.requested)
}

func (w *world) servings() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.served)
}

func (w *world) lookups() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.recordReads
}

func (w *world) failures() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

func (w *world) renderedReads() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.renderedReadCount
}

// set changes the world under its lock.
func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func (w *world) failWrites() { w.set(func() { w.writeErr = errors.New("the API server is down") }) }

// addRecord adds the PoolbootConfig default/<name>, whose UID is its name.
func (w *world) addRecord(pointer, name, tokenHash string) server.Record {
	record := server.Record{
		NamespacedName: types.NamespacedName{Namespace: "default", Name: name},
		UID:            types.UID(name),
		PointerID:      pointer,
		Token:          record.Token{Hash: tokenHash, UID: types.UID(name)},
	}
	w.set(func() { w.records[name] = &record })
	return record
}

// inState sets the state of the token of a record.
func (w *world) inState(name string, state bootstrapv1.TokenState) {
	w.set(func() { w.records[name].Token.State = state })
}

// addRendered adds a rendered config of a pool, which writes a file with that text, and returns its name.
func (w *world) addRendered(poolName, text string) string {
	GinkgoHelper()
	return w.addRenderedOf(poolName, text, []string{"nosmt"})
}

func (w *world) addRenderedOf(poolName, text string, kernelArguments []string) string {
	GinkgoHelper()
	spec := poolv1.MachineConfigSpec{
		Config:          &runtime.RawExtension{Raw: []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/infratest","contents":{"source":"data:,` + text + `"}}]}}`)},
		KernelArguments: kernelArguments,
	}
	name, err := pool.NameFor(poolName, spec)
	Expect(err).NotTo(HaveOccurred())
	rendered := &poolv1.MachineConfig{Spec: spec}
	rendered.Namespace, rendered.Name = "default", name
	rendered.Labels = map[string]string{poolv1.RenderedForLabel: poolName}
	packed, err := server.PackRendered(rendered)
	Expect(err).NotTo(HaveOccurred())
	w.set(func() { w.rendered[types.NamespacedName{Namespace: "default", Name: name}] = packed })
	return name
}

// addOverlay adds or replaces a machine's overlay.
func (w *world) addOverlay(config types.UID, rendered string, life time.Duration) {
	w.set(func() {
		w.version++
		w.overlays[config] = server.Overlay{
			Packed:        packed(overlayJSON),
			Configuration: rendered,
			Expires:       time.Now().Add(life),
			Version:       strconv.Itoa(w.version),
		}
	})
}

// renderedPath returns the path from which machine-0 downloads the configuration of its pool.
func renderedPath(w *world) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return "/rendered/default/" + w.overlays["machine-0"].Configuration + "?config=machine-0&pointer=" + pointerID
}

// packed packs an overlay as the manager does.
func packed(overlay string) ignition.PackedOverlay {
	GinkgoHelper()
	packed, err := ignition.PackOverlay(parse([]byte(overlay)))
	Expect(err).NotTo(HaveOccurred())
	return packed
}

// renderedNames returns the names of all rendered configs.
func (w *world) renderedNames() []types.NamespacedName {
	w.mu.Lock()
	defer w.mu.Unlock()
	var names []types.NamespacedName
	for name := range maps.Keys(w.rendered) {
		names = append(names, name)
	}
	return names
}
