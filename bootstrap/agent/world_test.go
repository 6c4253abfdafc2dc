package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/diskspace"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/hostfiles"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/unitstate"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// interruption is the value of a panic that stands for a killed agent.
type interruption struct{ at string }

// booted is the value of a panic that ends the agent with a reboot.
type booted struct{}

// world is a host with everything around it: disk, systemd, kubelet, API server, manager and config server. It survives
// the agent.
type world struct {
	directory string

	// State of the host that is not in files.
	enablement map[string]update.Enablement
	masked     []string
	// dropIns, overriding and overridingMasks are what Units.Overrides returns.
	dropIns, overriding, overridingMasks []string
	accounts                             map[string]string
	arguments                            []string
	// originals and kept are how units and kernel arguments were before the first change.
	originals map[string]update.Enablement
	kept      []string
	os        update.OperatingSystem
	flags     bool // whether the kubelet's flags follow from the file
	// running are the arguments of the running kernel, removed those that no configuration has any more, and runningOS
	// is its image.
	running   []string
	removed   []string
	runningOS string
	// can is what the host has programs for.
	can update.Capabilities
	// losesArguments is set if the boot loader does not use what is configured.
	losesArguments bool

	boots int
	// rebooted is what the operating system changes in each boot.
	rebooted  func()
	bootTime  time.Duration // the uptime at which a boot begins
	uptime    time.Duration
	wallclock time.Time
	lease     time.Time
	// started is when systemd started last, in a boot or a soft reboot.
	started time.Duration
	// startsOtherKernel is set if a kexec does not start what is configured.
	startsOtherKernel bool
	// shutsDownSlowly is set if the agent goes on while the host shuts down.
	shutsDownSlowly bool
	// losesPower is set if the host boots when the agent is killed.
	losesPower bool

	node Node
	// obstructs is called before each operation, and returns why it fails. It can be nil.
	obstructs func(update.Operation) error
	// isBroken reports whether the kubelet can't become Ready with what is on the host.
	isBroken func() bool
	// isCutOff reports whether the host can't reach the config server, and isSilent whether no API server answers.
	isCutOff, isSilent func() bool
	// found returns what the check of the host finds.
	found func() []string
	// pods returns why the probes of static Pods do not pass, "" if they do, by manifest. volumes are what they mount.
	pods    func() map[string]string
	volumes []string
	// units returns the states of units that do not simply run.
	units func() map[string]unitstate.State
	// drains is set if the manager drains.
	drains bool
	// staysReady keeps the Node Ready while the host is broken, as an API server that has not missed the kubelet yet.
	staysReady bool
	// slow is how long calls take, while the kubelet reports.
	slow map[string]time.Duration
	// hasLeaseOnly is set if the kubelet renews its lease and does not report the Node.
	hasLeaseOnly bool

	documents map[string][]byte                      // by revision
	offered   string                                 // the revision that the config server has
	rendered  map[string][]byte                      // by name
	contents  map[string][]byte                      // by URL
	programs  map[string][]byte                      // by hash
	fails     map[string]error                       // by call
	failsOnce map[string]error                       // by call
	during    map[string]func(context.Context) error // by call
	// annotated is called after each report. meanwhile is the time between two reports during a download.
	annotated func()
	meanwhile time.Duration
	left      []hostfiles.LeftOver
	refusals  map[string]string // by executor
	program   *fakeProgram
	downloads int      // of programs
	fetched   []string // URLs of contents that were downloaded
	// limit is that of downloads now, and programLimit when a program was downloaded last.
	limit, programLimit int64
	// full is how many bytes of the disk are left, if that is not 0.
	full atomic.Int64
	// agent is the one that was started last.
	agent *Agent
	// onRendered is called once, when the agent downloads a rendered config. It can be nil.
	onRendered func()

	calls    []string // actions on the host
	steps    []string // everything that can be interrupted
	stopAt   int      // the step before which the agent is killed, 0 for none
	killedAt string   // the step before which every agent is killed
	states   []string // reported states, each once in a row
	// prepared are the operations that were prepared.
	prepared []string
}

func newWorld() *world {
	GinkgoHelper()
	parent := "/dev/shm"
	if _, err := os.Stat(parent); err != nil {
		parent = ""
	}
	directory, err := os.MkdirTemp(parent, "agent-")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, directory)
	w := &world{
		directory: directory, enablement: map[string]update.Enablement{}, originals: map[string]update.Enablement{}, accounts: map[string]string{}, boots: 1, started: time.Second, uptime: time.Hour,
		wallclock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), isBroken: func() bool { return false }, isCutOff: func() bool { return false }, found: func() []string { return nil }, pods: func() map[string]string { return nil }, isSilent: func() bool { return false }, units: func() map[string]unitstate.State { return nil }, drains: true, can: update.AllCapabilities,
		documents: map[string][]byte{}, rendered: map[string][]byte{}, contents: map[string][]byte{}, programs: map[string][]byte{}, fails: map[string]error{},
		node: Node{Known: true, Annotations: map[string]string{}, Ready: true},
	}
	for name, contents := range map[string]string{
		"etc/passwd":     "root:x:0:0::/root:/bin/sh\ncore:x:1000:1000::/home/core:/bin/sh\n",
		"etc/group":      "root:x:0:\ncore:x:1000:\n",
		"etc/image.conf": "of the image\n",
	} {
		w.write(name, contents)
	}
	Expect(os.MkdirAll(filepath.Join(directory, "usr/etc"), 0o755)).To(Succeed())
	w.write("usr/etc/image.conf", "of the image\n")
	return w
}

func (w *world) write(name, contents string) {
	GinkgoHelper()
	name = filepath.Join(w.directory, name)
	Expect(os.MkdirAll(filepath.Dir(name), 0o755)).To(Succeed())
	Expect(os.WriteFile(name, []byte(contents), 0o644)).To(Succeed())
}

func (w *world) read(name string) string {
	raw, err := os.ReadFile(filepath.Join(w.directory, name))
	if err != nil {
		return ""
	}
	return string(raw)
}

// step is a point at which the agent can be killed.
func (w *world) step(name string) {
	w.steps = append(w.steps, name)
	if len(w.steps) == w.stopAt || name == w.killedAt {
		panic(interruption{name})
	}
}

// change is a change of the host. The agent can be killed before and after it.
func (w *world) change(name string, do func() error) error {
	w.step("before " + name)
	if err := w.fails[name]; err != nil {
		return err
	}
	err := do()
	w.step("after " + name)
	return err
}

// boot boots the host: the kubelet starts, and the kernel has new arguments.
func (w *world) boot() {
	w.boots++
	w.started, w.uptime = w.bootTime+10*time.Second, w.bootTime+30*time.Second
	if !w.losesArguments {
		w.running, w.runningOS = slices.Clone(w.arguments), w.os.Image
	}
	if w.rebooted != nil {
		w.rebooted()
	}
}

// pass lets time pass: the kubelet reports, and the manager drains.
func (w *world) pass(d time.Duration) {
	w.uptime += d
	w.wallclock = w.wallclock.Add(d)
	if !w.isBroken() {
		w.lease = w.wallclock
		if !w.hasLeaseOnly {
			w.node.Heartbeat = w.wallclock
		}
	}
	w.node.Ready = !w.isBroken() || w.staysReady
	if w.drains && w.node.Annotations[agentv1.StateAnnotation] == string(agentv1.Draining) {
		w.node.Annotations[agentv1.DrainedAnnotation] = w.node.Annotations[agentv1.TargetAnnotation]
	}
}

// begin starts an agent. It returns nil if it was killed.
func (w *world) begin() (a *Agent, stop func()) {
	GinkgoHelper()
	root, err := os.OpenRoot(w.directory)
	Expect(err).NotTo(HaveOccurred())
	files, err := hostfiles.Open(root)
	Expect(err).NotTo(HaveOccurred())
	stop = func() { _, _ = files.Close(), root.Close() }
	options := Options{
		Root: root, StateDirectory: "/var/lib/poolboot/agent", Files: &fakeFiles{files, w}, Capabilities: w.can,
		Executors: Executors{
			Accounts: &fakeExecutor{w, "accounts"}, KubeletFlags: &fakeExecutor{w, "flags"}, Enablement: &fakeExecutor{w, "enablement"}, KernelArguments: &fakeExecutor{w, "arguments"},
			OS: &fakeExecutor{w, "os"}, Units: fakeUnits{w}, Rebooter: fakeRebooter{w}, StaticPods: fakeStaticPods{w}, Images: fakeImages{w},
			Check: func(context.Context) ([]string, error) { return w.found(), w.fails["check"] },
		},
		Source: fakeSource{w}, Cluster: fakeCluster{w}, Clock: fakeClock{w}, Log: slog.New(slog.NewTextHandler(GinkgoWriter, nil)),
	}
	if w.program != nil {
		options.Program = w.program
	}
	a, err = New(options)
	if err != nil {
		stop()
		Expect(err).NotTo(HaveOccurred())
	}
	a.meanwhile = cmp.Or(w.meanwhile, a.meanwhile)
	a.store.before = w.step
	a.store.disk.Stat = func(directory string) (free, total int64, err error) {
		if full := w.full.Load(); full != 0 {
			return full, 100 << 30, nil
		}
		return diskspace.Stat(directory)
	}
	w.agent = a
	return a, stop
}

// errStuck means that the agent waits for something that does not happen.
var errStuck = errors.New("the agent waits")

// run runs agents until one has nothing to do for more than a minute. An agent that is killed is started again.
func (w *world) run() error {
	GinkgoHelper()
	for range 100 {
		done, err := w.runOne()
		if done {
			return err
		}
	}
	return errors.New("the agent does not end")
}

// seen returns the Node as an agent sees it.
func (w *world) seen() Node {
	node := w.node
	node.Annotations = maps.Clone(w.node.Annotations)
	return node
}

// runOne runs one agent. It returns false if it was killed or the host booted.
func (w *world) runOne() (done bool, err error) {
	GinkgoHelper()
	a, stop := w.begin()
	defer stop()
	defer func() {
		if reason := recover(); reason != nil {
			switch reason.(type) {
			case booted:
			case interruption:
				if w.losesPower {
					w.boot()
				}
			default:
				panic(reason)
			}
			done, err = false, nil
		}
	}()
	for range 1000 {
		node := w.seen()
		if a.carrying.seen != nil {
			a.See(node)
		}
		wait, err := a.Step(context.Background(), node)
		if errors.Is(err, ErrReplaced) {
			return true, err
		}
		if err == nil && wait > rebootTimeout && maps.Equal(node.Annotations, w.node.Annotations) {
			return true, nil
		}
		if err != nil && !errors.Is(err, errTemporary) {
			return true, err
		}
		w.pass(min(max(wait, time.Second), 10*time.Second))
	}
	return true, errStuck
}

// errTemporary is an error after which the agent is expected to try again.
var errTemporary = errors.New("temporary")

// apply carries out an operation that does not change files.
func (w *world) apply(operation update.Operation) {
	switch operation.Kind {
	case update.ChangeEnablement:
		w.enablement[operation.Name] = operation.After.Enablement
		if operation.After.Enablement == update.Preset {
			w.enablement[operation.Name] = w.originals[operation.Name]
		}
		if w.enablement[operation.Name] == "" {
			delete(w.enablement, operation.Name)
		}
	case update.ChangeUser, update.ChangeGroup:
		raw, err := json.Marshal(operation.After)
		Expect(err).NotTo(HaveOccurred())
		w.accounts[operation.Name] = string(raw)
		if operation.After.User == nil && operation.After.Group == nil {
			delete(w.accounts, operation.Name)
		}
	case update.ChangeKernelArguments:
		if w.kept == nil {
			w.kept = append([]string{}, without(w.arguments, func(argument string) bool { return slices.Contains(operation.Before.KernelArguments, argument) })...)
		}
		isKept := func(argument string) bool { return slices.Contains(w.kept, argument) }
		w.arguments = without(w.arguments, func(argument string) bool {
			return !isKept(argument) && (slices.Contains(operation.Before.KernelArguments, argument) || slices.Contains(operation.After.KernelArguments, argument))
		})
		w.arguments = append(w.arguments, without(operation.After.KernelArguments, isKept)...)
		w.removed = slices.Concat(w.removed, without(operation.Before.KernelArguments, isKept))
	case update.ChangePath:
		w.flags = operation.After.Path != nil
	case update.ChangeOS:
		w.os = *operation.After.OS
	}
}

// snapshot describes everything on the host that a configuration decides.
func (w *world) snapshot() map[string]string {
	GinkgoHelper()
	entries := map[string]string{"kernel arguments": fmt.Sprint(w.arguments), "running": fmt.Sprint(w.running, w.runningOS), "os": w.os.Image}
	for name, value := range w.enablement {
		entries["unit "+name] = string(value)
	}
	for name, value := range w.accounts {
		entries["account "+name] = value
	}
	Expect(filepath.WalkDir(w.directory, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, _ := filepath.Rel(w.directory, name)
		if relative == "var/lib/poolboot" {
			return fs.SkipDir
		}
		if entry.Type().IsRegular() {
			info, err := entry.Info()
			Expect(err).NotTo(HaveOccurred())
			entries[relative] = info.Mode().String() + " " + w.read(relative)
		} else if entry.Type()&fs.ModeSymlink != 0 {
			entries[relative], _ = os.Readlink(name)
		}
		return nil
	})).To(Succeed())
	return entries
}

// state returns the reported state of a revision.
func (w *world) state() string {
	return w.node.Annotations[agentv1.StateAnnotation] + " " + w.node.Annotations[agentv1.TargetAnnotation]
}

func (w *world) reason() string { return w.node.Annotations[agentv1.ReasonAnnotation] }
