package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/host/systemd"
)

// boot is a power cycle of a host.
type boot struct {
	host    *Host
	ctx     context.Context
	cancel  context.CancelFunc
	console *console
	// done is closed when all processes have exited. err is set before that.
	done chan struct{}
	err  error
}

// powerOn prepares the disk with prepare and starts a power cycle in the background.
func (h *Host) powerOn(ctx context.Context, prepare func() error, first bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.boot != nil {
		select {
		case <-h.boot.done:
		default:
			return fmt.Errorf("host %s: it is on already; call PowerOff first", h.options.Name)
		}
	}
	if err := h.options.complete(); err != nil {
		return fmt.Errorf("host %s: %w", h.options.Name, err)
	}
	if err := os.MkdirAll(h.options.Dir, 0o755); err != nil {
		return fmt.Errorf("host %s: %w", h.options.Name, err)
	}
	if err := prepare(); err != nil {
		return fmt.Errorf("host %s: %w", h.options.Name, err)
	}
	console, err := openConsole(h.options)
	if err != nil {
		return fmt.Errorf("host %s: %w", h.options.Name, err)
	}
	b := &boot{host: h, console: console, done: make(chan struct{})}
	b.ctx, b.cancel = context.WithCancel(ctx)
	h.boot = b
	go func() {
		defer close(b.done)
		defer console.Close()
		defer b.cancel()
		h.happened(PoweredOn, "")
		if err := b.run(first); err != nil && b.ctx.Err() == nil {
			b.err = fmt.Errorf("host %s: %w\n%s", h.options.Name, err, console.lastLines())
		}
		h.happened(PoweredOff, errorText(b.err))
	}()
	return nil
}

// run runs the host from power on to power off.
func (b *boot) run(first bool) error {
	if first {
		if err := b.ignite(); err != nil {
			return err
		}
	}
	stopRuntime, err := serveContainerRuntime(b.host.Root())
	if err != nil {
		return fmt.Errorf("container runtime: %w", err)
	}
	defer stopRuntime()
	go b.watchSentinel()
	manager := systemd.Manager{
		Root:    b.host.Root(),
		Command: b.command,
		Run:     run,
		Started: b.programStarted,
		Changed: b.unitChanged,
	}
	b.host.happened(UnitsStarted, "")
	return manager.Boot(b.ctx)
}

func (b *boot) unitChanged(unit string, state systemd.State, err error) {
	_, _ = fmt.Fprintln(b.console.of("systemd"), unit, state, errorText(err))
	switch state {
	case systemd.Active:
		b.host.happened(UnitStarted, unit)
	case systemd.Failed, systemd.Restarting:
		b.host.happened(UnitFailed, strings.TrimSpace(unit+" "+errorText(err)))
	}
}

func (b *boot) programStarted(unit string, argv []string) {
	if filepath.Base(argv[0]) == "kubelet" {
		b.host.happened(KubeletStarted, unit)
	}
}

// watchSentinel records when the sentinel file appears.
func (b *boot) watchSentinel() {
	err := wait.PollUntilContextCancel(b.ctx, 50*time.Millisecond, true, func(context.Context) (bool, error) {
		return b.host.Joined(), nil
	})
	if err == nil {
		b.host.happened(BootstrapDone, "/"+sentinel)
	}
}

// emptyRun empties /run, as a power loss does.
func (h *Host) emptyRun() error {
	run := filepath.Join(h.Root(), "run")
	if _, err := os.Stat(run); errors.Is(err, fs.ErrNotExist) {
		return errors.New("nothing to boot from: the disk is empty; call PowerOn first")
	}
	if err := os.RemoveAll(run); err != nil {
		return err
	}
	return makeFolder(filepath.Join(run, "containerd"), folders["run/containerd"])
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
