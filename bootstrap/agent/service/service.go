// Package service runs the agent of a host: it connects the state machine of package agent to the API server, the
// config server, the clock and the disk of the host. It also registers the Node before the kubelet starts, and replaces
// the program of the agent.
package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/durable"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/hostfiles"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// StateDirectory has the journal and the documents of the agent.
const StateDirectory = hostfiles.StateDirectory + "/agent"

const (
	// firstRetry and lastRetry limit the time between two tries after errors. It doubles with each error in a row.
	firstRetry = 5 * time.Second
	lastRetry  = 5 * time.Minute
	// joinInterval is the time between two looks for the kubelet's certificate, before the host has joined.
	joinInterval = 5 * time.Second
	// settingsInterval is the time between two looks for settings that can be used.
	settingsInterval = 10 * time.Second
	// lookInterval is the time between two looks at the files and units of the host. Two calls of systemctl take about
	// 60 ms of processor time on a busy machine, mostly to start the program.
	lookInterval = 10 * time.Second
	// idleMemory is the size of the heap in bytes from which memory is returned to the host after work.
	idleMemory = 4 << 20
	// failuresBeforeRestart is after how many failures in a row the agent reads again where the API server is.
	failuresBeforeRestart = 5
)

// Service is the agent of a host.
type Service struct {
	// Root is the root directory of the host.
	Root *os.Root
	// Version is that of the program.
	Version string
	// Program replaces the program. It can be nil.
	Program *Program
	// Executors returns what changes the host. files is open while they are used.
	Executors    func(files *hostfiles.Updater) agent.Executors
	Capabilities update.Capabilities
	Log          *slog.Logger

	// lookInterval is the time between two looks at the host, by default lookInterval.
	lookInterval time.Duration
}

// Run runs the agent until the context ends. It returns agent.ErrReplaced if its program was replaced, and other errors
// if it can go on only in another process.
func (s *Service) Run(ctx context.Context) error {
	c, err := s.waitForJoin(ctx)
	var unusable *settingsError
	if err != nil && !errors.As(err, &unusable) {
		return err
	}
	s.Log.Info("agent started", "version", s.Version, "node", c.node)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	nodes := newLatest()
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel(nil)
	see := s.logging(func(node agent.Node) {
		nodes.set(node)
		s.reportStart(ctx, c, node)
	})
	watch.Go(func() {
		c.cluster.Watch(ctx, see, func(ctx context.Context, failures int) { s.waitAfter(ctx, cancel, c, failures) })
	})

	if unusable != nil {
		return s.reportOnly(ctx, c, nodes, unusable)
	}
	files, err := hostfiles.Open(s.Root)
	if err != nil {
		return s.reportOnly(ctx, c, nodes, err)
	}
	defer files.Close()
	options := agent.Options{
		Root: s.Root, StateDirectory: StateDirectory, Files: files, Executors: s.Executors(files), Capabilities: s.Capabilities,
		Source: c.source, Cluster: c.cluster, Clock: Clock{}, Log: s.Log,
	}
	if s.Program != nil {
		options.Program = s.Program
	}
	a, err := agent.New(options)
	if err != nil {
		return s.reportOnly(ctx, c, nodes, err)
	}
	err = s.loop(ctx, c, a, nodes)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// Check does what a start of the agent does, as far as that changes nothing: it reads everything, and reaches both
// servers. It is for a program that is to replace the running one.
func (s *Service) Check(ctx context.Context) error {
	c, err := s.connect()
	if err != nil {
		return err
	}
	if err := hostfiles.CheckJournal(s.Root); err != nil {
		return err
	}
	if err := agent.CheckState(s.Root, StateDirectory); err != nil {
		return err
	}
	if _, err := c.cluster.Renewed(ctx); err != nil {
		return fmt.Errorf("read from the API server: %w", err)
	}
	document, err := c.source.Assignment(ctx)
	if err != nil {
		return fmt.Errorf("download the assignment: %w", err)
	}
	_, err = assignment.Read(document)
	return err
}

// loop calls Step when something happens, or after the time that the last one returned. Meanwhile, it looks at the
// host. A try that fails because something happened does not make the next one later: a host whose Node changes often
// would wait for minutes after a short outage.
func (s *Service) loop(ctx context.Context, c *connection, a *agent.Agent, nodes *latest) error {
	nodes.follow(a.See)
	failures, isDue := 0, true
	looks := time.NewTicker(cmp.Or(s.lookInterval, lookInterval))
	defer looks.Stop()
	for {
		node := nodes.get()
		wait, err := a.Step(ctx, node)
		switch {
		case ctx.Err() != nil:
			return nil // it was stopped
		case errors.Is(err, agent.ErrReplaced):
			return err
		case err != nil:
			// An undo is in time although nothing is reported, and what it reports does not come minutes later.
			if retry := retryAfter(failures + 1); wait == 0 || retry < wait {
				wait = retry
				if isDue || failures == 0 {
					failures++
				}
			}
			s.Log.Error("the agent tries again", "error", err, "after", wait.String())
		default:
			failures = 0
			if node.Known && s.Program != nil {
				if err := s.Program.prove(); err != nil {
					s.Log.Error("record that the program works", "error", err)
				}
			}
		}
		if err := s.checkSettings(c); err != nil {
			return err
		}
		releaseMemory()
		timer := time.NewTimer(wait)
		isDue = false
		for isQuiet := true; isQuiet; {
			isQuiet = false
			select {
			case <-ctx.Done():
			case <-nodes.changed:
			case <-looks.C:
				isQuiet = !a.Look(ctx) && ctx.Err() == nil
			case <-timer.C:
				isDue = true
			}
		}
		timer.Stop()
		if ctx.Err() != nil {
			return nil // it was stopped
		}
	}
}

// retryAfter returns the time before the next try, after a number of failures in a row. It is random, so that the hosts
// of a cluster do not try at the same time.
func retryAfter(failures int) time.Duration {
	wait := lastRetry
	if failures < 8 {
		wait = min(lastRetry, firstRetry<<(failures-1))
	}
	return wait/2 + rand.N(wait/2)
}

// reportOnly reports why the agent can't work, and changes nothing, until the context ends. Errors that another start
// can solve are returned.
func (s *Service) reportOnly(ctx context.Context, c *connection, nodes *latest, problem error) error {
	var ofJournal *durable.JournalError
	var ofSettings *settingsError
	if !errors.As(problem, &ofJournal) && !errors.As(problem, &ofSettings) {
		return problem
	}
	s.Log.Error("the agent changes nothing until this is corrected", "error", problem)
	state, reason, version, boot := string(agentv1.Degraded), problem.Error(), strconv.Itoa(agentv1.ReportVersion), Clock{}.BootID()
	for {
		node := nodes.get()
		if is := node.Annotations; node.Known && (is[agentv1.StateAnnotation] != state || is[agentv1.ReasonAnnotation] != reason || is[agentv1.ReportVersionAnnotation] != version || is[agentv1.BootAnnotation] != boot) {
			desired := node.Annotations[agentv1.DesiredAnnotation]
			report := map[string]*string{
				agentv1.ReportVersionAnnotation: &version, agentv1.StateAnnotation: &state, agentv1.ReasonAnnotation: &reason, agentv1.AgentAnnotation: &s.Version,
				agentv1.BootAnnotation: &boot,
			}
			if desired != "" {
				report[agentv1.TargetAnnotation] = &desired
			}
			if err := c.cluster.Annotate(ctx, report); err != nil {
				s.Log.Error("report", "error", err)
			}
		}
		var again <-chan time.Time
		if ofSettings != nil {
			if raw, err := s.readSettings(); err == nil {
				if _, err := assignment.ReadSettings(raw); err == nil {
					return errOtherSettings
				}
			}
			again = time.After(settingsInterval)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-nodes.changed:
		case <-again:
		}
	}
}

// releaseMemory returns memory to the host after work that needed much.
func releaseMemory() {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	if stats.HeapSys-stats.HeapReleased > idleMemory {
		debug.FreeOSMemory()
	}
}
