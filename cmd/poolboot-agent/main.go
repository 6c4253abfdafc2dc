// Command poolboot-agent keeps a running host in the configuration of its pool. It runs on each host, as root, in the
// unit that the host's first boot wrote. Package bootstrap/agent decides what happens; this package connects it to the
// programs of the host.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/accounts"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/command"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/containerimages"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/hostfiles"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/kernelarguments"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/kubeletflags"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/osimage"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/selinux"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/service"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/staticpods"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/systemd"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// version is set when the program is built.
var version = "v0.0.0"

const usage = `poolboot-agent keeps this host in the configuration of its pool.

Usage:
  poolboot-agent run       follow the pool until stopped
  poolboot-agent register  have the Node registered before the kubelet starts; never fails
  poolboot-agent stopped   report that the agent has stopped, unless the host shuts down
  poolboot-agent guard     count a start of the program that replaced this one
  poolboot-agent check     test whether this program works on this host, and change nothing
  poolboot-agent version   print the version
`

// Limits of the memory of an idle agent. It collects garbage early: work is rare, and takes what it needs.
const (
	collectAt   = 50       // percent of growth
	memoryLimit = 14 << 20 // bytes, from which it collects more often
)

// longTimeout is for programs that download images and packages.
const longTimeout = time.Hour

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// run runs a subcommand, and returns the exit code.
func run(ctx context.Context, arguments []string) int {
	if len(arguments) != 1 {
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	switch arguments[0] {
	case "version":
		fmt.Println(version)
		return 0
	case "run", "register", "stopped", "check", "guard":
	default:
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	// The journal of the host adds the time. It has what programs wrote before they failed, which is not part of
	// reports.
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{ReplaceAttr: func(_ []string, attribute slog.Attr) slog.Attr {
		if attribute.Key == slog.TimeKey {
			return slog.Attr{}
		}
		if err, isError := attribute.Value.Any().(error); isError {
			return slog.String(attribute.Key, command.Detail(err))
		}
		return attribute
	}}))
	debug.SetGCPercent(collectAt)
	debug.SetMemoryLimit(memoryLimit)
	root, err := os.OpenRoot("/")
	if err != nil {
		log.Error("open the root directory", "error", err)
		return 1
	}
	defer root.Close()
	switch arguments[0] {
	case "register":
		if err := (&service.Service{Root: root, Version: version, Log: log}).Register(ctx); err != nil {
			log.Warn("the Node was not registered before the kubelet starts", "reason", err)
			return 0
		}
		log.Info("the Node is registered")
		return 0
	case "stopped":
		state, _ := command.Runner{}.Run(ctx, "systemctl", "is-system-running") // it fails unless everything runs
		if strings.TrimSpace(string(state)) != "stopping" {                     // the kubelet says what a shutdown does
			err = (&service.Service{Root: root, Version: version, Log: log}).ReportStop(ctx)
		}
	case "guard":
		var program *service.Program
		if program, err = newProgram(root); err == nil {
			err = program.Guard()
		}
	case "check":
		err = newService(ctx, root, log).Check(ctx)
	default:
		go notifyWatchdog(ctx)
		s := newService(ctx, root, log)
		if s.Program, err = newProgram(root); err == nil {
			err = s.Run(ctx)
		}
	}
	switch {
	case errors.Is(err, agent.ErrReplaced):
		log.Info("the agent starts again", "reason", err)
	case err != nil && ctx.Err() == nil:
		log.Error(arguments[0], "error", err)
		return 1
	}
	return 0
}

// notifyWatchdog tells systemd that the process is not frozen, as often as the unit asks for.
func notifyWatchdog(ctx context.Context) {
	limit, err := daemon.SdWatchdogEnabled(false)
	if limit == 0 || err != nil {
		return // it does not run in a unit that asks for it
	}
	for ticks := time.Tick(limit / 3); ctx.Err() == nil; <-ticks {
		_, _ = daemon.SdNotify(false, daemon.SdNotifyWatchdog) // systemd finds out if it fails
	}
}

var (
	_, _ agent.Refuser = (*kernelarguments.Executor)(nil), (*osimage.Executor)(nil)
	_    agent.Stager  = (*osimage.Executor)(nil)
)

// newService returns the agent of this host.
func newService(ctx context.Context, root *os.Root, log *slog.Logger) *service.Service {
	runner, slow := command.Runner{}, command.Runner{Timeout: longTimeout}
	var programs []string
	for _, name := range update.Programs {
		if _, err := runner.Find(name); err == nil {
			programs = append(programs, name)
		}
	}
	arguments := &kernelarguments.Executor{Runner: slow, Programs: programs}
	can := update.CapabilitiesOf(programs...)
	can.KernelArguments = can.KernelArguments && arguments.IsUsable(ctx)
	units := systemd.Manager{Runner: runner}
	can.LacksKexec, can.LacksSoftReboot = units.Lacks(update.Kexec), units.Lacks(update.SoftReboot)
	return &service.Service{
		Root: root, Version: version, Log: log, Capabilities: can,
		Executors: func(files *hostfiles.Updater) agent.Executors {
			files.Labels = func(class string, paths []string) ([]string, error) {
				return selinux.LabelsOf(ctx, runner, root.Name(), class, paths)
			}
			return agent.Executors{
				Accounts:        accounts.Executor{Runner: runner},
				KubeletFlags:    &kubeletflags.Executor{},
				Enablement:      systemd.Enablement{Runner: runner, Links: files.Links},
				KernelArguments: arguments,
				OS:              &osimage.Executor{Runner: slow, Programs: programs},
				Images:          containerimages.Puller{Runner: slow},
				Units:           units,
				Rebooter:        units,
				StaticPods:      staticpods.Host{Root: root},
				Check:           units.Check,
			}
		},
	}
}

// newProgram returns the running program, which is replaced where the host's first boot wrote it.
func newProgram(root *os.Root) (*service.Program, error) {
	return service.NewProgram(root, assignment.ProgramPath, version, func(ctx context.Context, path string) error {
		// A shell starts it, as in the unit: policies of SELinux allow that.
		_, err := command.Runner{}.Run(ctx, "sh", "-c", `exec "$0" check`, path)
		return err
	})
}
