// Command demo demonstrates Poolboot: it sets up a site, applies the manifests of a user, and boots four machines into
// their pools. Then it changes a pool while its hosts run. From every version of every Node that a watch received, it
// proves that no Node was ever outside its pool, and that the hosts were changed one after the other. It fails if a
// number in its summary is not the expected one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
)

const (
	// bootTimeout limits the boots of all machines together. They usually take a minute.
	bootTimeout = 8 * time.Minute
	// poolTimeout limits how long the pools take to count the machines that have booted. It usually takes seconds.
	poolTimeout = time.Minute
	// updateTimeout limits each change of the running hosts. It usually takes half a minute.
	updateTimeout = 5 * time.Minute
)

func main() {
	keep := flag.Bool("keep", false, "keep everything running until the demo is interrupted")
	flows := flag.Bool("flows", false, "set up the cluster of docs/flows.md instead, and keep it running until the demo is interrupted")
	flag.Parse()
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	ctx, stop := untilInterrupted(context.Background())
	err := run(ctx, *keep, *flows)
	interrupted := ctx.Err() != nil
	stop()
	if err != nil && interrupted {
		fmt.Fprintln(os.Stderr, "demo: interrupted; stopped everything that it started")
		os.Exit(130)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo: FAILED:", err)
		os.Exit(1)
	}
}

// run runs the demo.
func run(ctx context.Context, keep, flows bool) (err error) {
	began := time.Now()
	fmt.Println("==> Setting up a site: two clusters, Cluster API, Poolboot")
	s, err := site.Start(ctx, site.Options{Progress: os.Stdout, Agents: true})
	if err != nil {
		return fmt.Errorf("%w\nWhat to do: read the log above. To rebuild all programs, run `make clean` and the same command again", err)
	}
	defer func() {
		if stopErr := s.Stop(); err == nil && stopErr != nil {
			err = fmt.Errorf("clean up: %w", stopErr)
		}
	}()
	if flows {
		return runFlows(ctx, s)
	}

	nodes, err := site.RecordNodes(ctx, s.WorkloadClient)
	if err != nil {
		return err
	}
	timeline, err := site.RecordTimeline(ctx, s.ManagementClient, s.WorkloadClient)
	if err != nil {
		return err
	}
	asked, err := apply(ctx, s)
	if err != nil {
		return err
	}
	shown, err := show(ctx, s, nodes, timeline, asked)
	shown.seconds = int(time.Since(began).Seconds())
	if err == nil {
		fmt.Println(shown)
		err = shown.check()
	}
	if keep && ctx.Err() == nil {
		if err != nil {
			fmt.Fprintln(os.Stderr, "demo: FAILED, and keeps everything running:", err)
		}
		err = errors.Join(err, waitForInterrupt(ctx, s, look.String))
	}
	return err
}

// show runs both acts: the machines boot, and the pool infra changes while its hosts run.
func show(ctx context.Context, s *site.Site, nodes *site.NodeHistory, timeline *site.Timeline, asked time.Time) (r result, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, explain(ctx, s))
		}
	}()
	boots, err := waitForBoots(ctx, s)
	if err != nil {
		return r, err
	}
	if err := waitForPools(ctx, s); err != nil {
		return r, err
	}
	printTimeline(os.Stdout, boots, timeline.Of)
	if err := printRequests(s, asked, boots); err != nil {
		return r, err
	}
	if err := printClusters(ctx, s); err != nil {
		return r, err
	}
	if err := printVersions(ctx, s, boots, nodes); err != nil {
		return r, err
	}
	updated, err := newUpdates(s, boots, nodes).run(ctx)
	if err != nil {
		return r, err
	}
	if boots, err = readBoots(ctx, s); err != nil {
		return r, err
	}
	if r, err = prove(ctx, s, boots, nodes); err != nil {
		return r, err
	}
	r.updated = updated
	return r, nil
}

// apply creates the objects of a user: hosts, the Cluster, pools with their MachineConfigs, MachineDeployments. It
// returns the time when it applied the last manifest.
func apply(ctx context.Context, s *site.Site) (asked time.Time, err error) {
	fmt.Println("==> Applying the manifests of a user")
	if err := s.CreateCluster(ctx); err != nil {
		return asked, err
	}
	for _, file := range []string{"1-hosts.yaml", "2-pools.yaml", "3-machines.yaml"} {
		asked = time.Now()
		if err := kubectl(ctx, s, "apply", file); err != nil {
			return asked, err
		}
	}
	return asked, nil
}

// kubectl applies or deletes a manifest of the demo.
func kubectl(ctx context.Context, s *site.Site, verb, file string) error {
	bin, err := process.BinDir()
	if err != nil {
		return err
	}
	path := filepath.Join("test", "demo", "manifests", file)
	output, err := s.Kubectl(ctx, s.Management, verb, "-f", filepath.Join(filepath.Dir(bin), path))
	if err == nil {
		fmt.Printf("kubectl %s -f %s\n%s", verb, path, indent(output))
	}
	return err
}

// waitForInterrupt lets a user try the site, as a text says. A scheduler runs Pods on its hosts.
func waitForInterrupt(ctx context.Context, s *site.Site, text func(look) string) error {
	if err := s.Workload.StartScheduler(); err != nil {
		return err
	}
	bin, err := process.BinDir()
	if err != nil {
		return err
	}
	fmt.Print(text(look{
		bin: bin, management: s.Management.Kubeconfig, workload: s.Workload.Kubeconfig,
		manager: s.Manager.MetricsURL(), configServer: s.ConfigServer.MetricsURL(),
		auditLog: s.Workload.AuditLog, dir: s.Dir(), pid: os.Getpid(),
	}))
	<-ctx.Done()
	return nil
}

// look names what a user can inspect while the site is running.
type look struct {
	bin                   string // with kubectl and the plugin
	management, workload  string // kubeconfigs
	manager, configServer string // URLs of metrics
	auditLog, dir         string
	pid                   int
}

func (l look) String() string {
	return fmt.Sprintf(`
The site is running. To try it, run in other terminals:
  export PATH=%s:$PATH KUBECONFIG=%s WORKLOAD_KUBECONFIG=%s
  kubectl get pbpool,machine
  kubectl poolboot rollout status
  kubectl --kubeconfig $WORKLOAD_KUBECONFIG get nodes
  make demo-shell HOST=host-0   # a shell on a BareMetalHost
  kubectl annotate baremetalhost host-0 reboot.metal3.io/off=   # switch it off; on again: reboot.metal3.io/off-
Metrics:
  curl %s   # manager
  curl %s   # config server
`, l.bin, l.management, l.workload, l.manager, l.configServer) + l.end()
}

// flows names the shells of docs/flows.md.
func (l look) flows() string {
	return fmt.Sprintf(`
The site of docs/flows.md is running. For its shells, run in other terminals:
  export PATH=%[1]s:$PATH KUBECONFIG=%[2]s PS1='hub$ '
  export PATH=%[1]s:$PATH KUBECONFIG=%[3]s PS1='edge$ '
  make demo-shell HOST=server-1   # once it has booted
`, l.bin, l.management, l.workload) + l.end()
}

func (l look) end() string {
	return fmt.Sprintf(`The logs and the disks of the hosts are in %[1]s, and what a host prints on its console in %[1]s/HOST/console.log.
The audit log of the workload cluster is %[2]s.
To stop, press Ctrl-C or run kill -INT %[3]d. The demo then stops everything and cleans up.
`, l.dir, l.auditLog, l.pid)
}
