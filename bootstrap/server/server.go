package server

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

// defaultWait is the maximum time for which a request is held until its configuration is complete. Ignition gives up
// after 10 seconds without response headers.
const defaultWait = 9 * time.Second

// Options are the settings of a Server. Wait and Now are optional.
type Options struct {
	// ExternalURL is the URL by which hosts reach the server.
	ExternalURL *url.URL

	// Sources are caches, which can be stale.
	Sources

	// Live reads the same objects from the API server. Answers that end a boot (401, 403) are confirmed with it. It is
	// nil if the caches are never stale.
	Live *Sources

	// Rendered has the result of PackRendered for every rendered MachineConfig. It is read for every request and must
	// not block.
	Rendered Source[types.NamespacedName, PoolBytes]

	// Programs are the agents that hosts can download. It is nil if there are none.
	Programs *Programs

	Boots      BootRecorder
	Admissions AdmissionRecorder
	Metrics    *Metrics
	Log        logr.Logger

	// Ready returns why the server is not ready to serve, or nil.
	Ready func() error

	// Wait is the maximum time for which a request is held until its configuration is complete. Defaults to 9 seconds.
	Wait time.Duration

	// Now is the clock.
	Now func() time.Time
}

// Server answers requests of hosts. It is an http.Handler; serve it with NewHTTPServer.
type Server struct {
	opts      Options
	base      string // of the URLs of rendered configs
	rendered  *renderedBytes
	changes   *changes
	recording *recording
	// missingPrograms are what hosts requested in vain.
	missingPrograms missingPrograms
	cached          *view          // reads the caches
	live            *view          // reads the API server; nil if the caches are never stale
	writes          sync.WaitGroup // writes that continue after the answer
}

// New returns a server.
func New(o Options) *Server {
	if o.Wait == 0 {
		o.Wait = defaultWait
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{
		opts:      o,
		base:      renderedBase(o.ExternalURL),
		rendered:  newRenderedBytes(o.Rendered, o.Metrics),
		changes:   newChanges(),
		recording: newRecording(o.Boots, o.Admissions, o.Now),

		missingPrograms: newMissingPrograms(),
	}
	s.cached = &view{Server: s, Sources: o.Sources, wait: o.Wait}
	if o.Live != nil {
		s.live = &view{Server: s, Sources: *o.Live, wait: confirmTimeout / 8} // not 0: the wait for an enrollment starts before it is read
	}
	return s
}

// view answers requests from one set of sources. All views share the server.
type view struct {
	*Server
	Sources
	wait time.Duration // maximum time for which a request is held
}

// object identifies an object that requests wait for. Exactly one field is set, depending on the kind.
type object struct {
	overlay    types.UID // of the PoolbootConfig
	rendered   types.NamespacedName
	enrollment types.NamespacedName
	record     types.NamespacedName
	assignment types.UID // of the PoolbootConfig
}

// OverlayChanged notifies the server that the overlay of a PoolbootConfig was created, changed or deleted.
func (s *Server) OverlayChanged(config types.UID) { s.changes.notify(object{overlay: config}) }

// AssignmentChanged notifies the server that the assignment of a PoolbootConfig was created, changed or deleted.
func (s *Server) AssignmentChanged(config types.UID) { s.changes.notify(object{assignment: config}) }

// RecordChanged notifies the server that a PoolbootConfig was created, changed or deleted.
func (s *Server) RecordChanged(name types.NamespacedName) { s.changes.notify(object{record: name}) }

// EnrollmentChanged notifies the server that an Enrollment was created, changed or deleted.
func (s *Server) EnrollmentChanged(name types.NamespacedName) {
	s.changes.notify(object{enrollment: name})
}

// RenderedChanged notifies the server that a rendered config was created, changed or deleted.
func (s *Server) RenderedChanged(name types.NamespacedName) {
	s.rendered.drop(name)
	s.changes.notify(object{rendered: name})
}

// WaitForWrites waits until every boot that was served is recorded. Call it after the HTTP server has shut down.
func (s *Server) WaitForWrites() { s.writes.Wait() }

// ServeHTTP answers one request, counts it and writes it to the access log.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	out := &answer{ResponseWriter: w, request: r, route: parseRoute(r.URL)}
	var refused *refusal
	err := s.cached.answer(r.Context(), out, r, out.route)
	if s.isFinal(err, r, out.route.kind) {
		err = s.confirm(r.Context(), out, r)
	}
	if refused = refusalOf(err); refused != nil {
		refused.write(out)
	}
	endTurn(r.Context())
	took := time.Since(start)
	s.opts.Metrics.observe(out.route.kind, out.code, took)
	s.writeAccess(out, refused, took)
}

// answer writes a successful answer, or returns the refusal.
func (v *view) answer(ctx context.Context, w *answer, r *http.Request, target route) error {
	if target.kind == kindUnknown {
		return newRefusal(http.StatusNotFound, "NotFound", "no such path: use the URL in the host's user data")
	}
	if allowed := methodsOf(target.kind); !slices.Contains(allowed, r.Method) {
		list := strings.Join(allowed, ", ")
		w.Header().Set("Allow", list)
		return newRefusal(http.StatusMethodNotAllowed, "MethodNotAllowed", "this path does not support the method: use one of %s", list)
	}
	switch target.kind {
	case kindHealth:
		return v.serveHealth(w, r)
	case kindAgent:
		return v.serveProgram(ctx, w, r, target)
	case kindUpdate:
		return v.serveUpdate(ctx, w, r, target)
	}
	isReport := r.Method == http.MethodPost
	if !isReport {
		var err error
		if target.version, err = versionFor(r); err != nil {
			return err
		}
		w.Header()["Vary"] = varyAccept
	}
	if target.kind == kindEnrollment {
		return v.serveEnrolled(ctx, w, r, target)
	}
	token := bearerToken(r)
	if target.kind == kindRendered && token == "" && len(chainOf(r)) > 0 {
		return v.serveRenderedToAgent(ctx, w, r, target)
	}
	record, err := v.authenticate(ctx, target, token)
	if err != nil {
		return err
	}
	w.config = record.NamespacedName
	if record.Enrollment == "" { // otherwise it is the enrollment token, which many hosts share
		target.from = addressOf(r)
		if err := v.checkAddress(ctx, record, target.from); err != nil {
			return err
		}
	}
	if target.kind == kindRendered {
		return v.serveRendered(ctx, w, r, record, target)
	}
	if record.Enrollment != "" {
		return unauthorized("the URL of a host that enrolls has its name, not a pointer ID: use the URL in the host's user data")
	}
	if isReport {
		return v.acceptReport(ctx, w, r, record, target, token)
	}
	return v.serveConfig(ctx, w, r, record, target, token)
}

// methodsOf returns the methods of a kind of path.
func methodsOf(kind string) []string {
	if kind == kindConfig || kind == kindUpdate {
		return []string{http.MethodGet, http.MethodHead, http.MethodPost}
	}
	return []string{http.MethodGet, http.MethodHead}
}

// findRecord returns the record of the host in a URL.
func (v *view) findRecord(ctx context.Context, target route) (*Record, error) {
	record, err := v.Records.Get(ctx, target.object)
	switch {
	case err != nil:
		return nil, unavailable(fmt.Errorf("finding PoolbootConfig %s: %w", target.object, err))
	case record == nil || record.PointerID != target.pointerID || record.Token.Hash == "" && !record.Token.IsRevoked():
		return nil, notReady("PoolbootConfig %s does not exist, or belongs to another host: it can still be restored or moved here; if it was deleted, "+
			"power the host off", target.object)
	}
	return record, nil
}

// authenticate returns the record of the host that a token belongs to. 401 is only for requests that can never succeed.
func (v *view) authenticate(ctx context.Context, target route, token string) (*Record, error) {
	if token == "" {
		return nil, unauthorized("a bearer token is required: it is in the host's user data")
	}
	record, err := v.findRecord(ctx, target)
	switch {
	case err != nil:
		return nil, err
	case record.Enrollment != "":
		return v.authenticateEnrolled(ctx, record, token)
	case record.accepts(token):
		endTurn(ctx)
		return record, nil
	case record.Rotating:
		return nil, notReady("the token of this machine is being rotated, and the new token is not recorded yet. Try again")
	case record.Token.IsStateUnknown():
		return nil, stateUnknown(record)
	case !record.Token.IsRevoked() && !record.isBound():
		return nil, notReady("PoolbootConfig %s was restored or moved here, and its token is not verified yet: if this persists, "+
			"see its condition %s", target.object, bootstrapv1.DataSecretAvailableCondition)
	}
	return nil, unauthorized("the token is not that of this machine, was rotated, has expired because the host did not join in time, or was revoked " +
		"once its Node was Ready. To boot the host from the beginning, delete its Machine; or, if it has none, provision its BareMetalHost again")
}

func (s *Server) serveHealth(w http.ResponseWriter, r *http.Request) error {
	if r.URL.Path == "/readyz" {
		if err := s.opts.Ready(); err != nil {
			return notReady("%v", err)
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, err := w.Write([]byte("ok"))
	return err
}
