package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
)

// machines is the number of machines in the manifests.
const machines = 4

// boot is one machine and the state of its boot.
type boot struct {
	machine clusterv1.Machine
	config  bootstrapv1.PoolbootConfig
	node    *corev1.Node
}

// wanted returns the role of the pool of a machine: the manifests name each MachineDeployment after it.
func (b boot) wanted() string { return b.machine.Labels[clusterv1.MachineDeploymentNameLabel] }

// done reports whether the boot of the machine is complete.
func (b boot) done() bool {
	return b.node != nil && util.IsNodeReady(b.node) &&
		conditions.IsTrue(&b.config, bootstrapv1.NodeInPoolCondition) &&
		conditions.IsTrue(&b.config, bootstrapv1.UpdatedCondition) &&
		record.HasJoined(&b.config) &&
		b.machine.Status.NodeRef.IsDefined()
}

// readBoots returns all machines of the site, ordered by name, and so by pool.
func readBoots(ctx context.Context, s *site.Site) ([]boot, error) {
	var list clusterv1.MachineList
	if err := s.ManagementClient.List(ctx, &list, client.InNamespace(site.Namespace)); err != nil {
		return nil, err
	}
	var boots []boot
	for _, machine := range list.Items {
		b := boot{machine: machine}
		key := client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.Bootstrap.ConfigRef.Name}
		if err := s.ManagementClient.Get(ctx, key, &b.config); client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if b.config.Status.NodeRef.IsDefined() {
			node := &corev1.Node{}
			err := s.WorkloadClient.Get(ctx, client.ObjectKey{Name: b.config.Status.NodeRef.Name}, node)
			if client.IgnoreNotFound(err) != nil {
				return nil, err
			}
			if err == nil {
				b.node = node
			}
		}
		boots = append(boots, b)
	}
	slices.SortFunc(boots, func(a, b boot) int { return cmp.Compare(a.machine.Name, b.machine.Name) })
	return boots, nil
}

// waitForBoots returns all machines when each is done, and prints their progress every few seconds.
func waitForBoots(ctx context.Context, s *site.Site) (boots []boot, err error) {
	fmt.Println("==> Waiting for the machines to boot with the real Ignition and kubelet")
	began, said := time.Now(), time.Now()
	err = wait.PollUntilContextTimeout(ctx, 250*time.Millisecond, bootTimeout, true, func(ctx context.Context) (bool, error) {
		if boots, err = readBoots(ctx, s); err != nil {
			return false, err
		}
		count := map[string]int{}
		for _, b := range boots {
			count["host"] += one(b.config.Status.HostRef.IsDefined())
			count["served"] += one(b.config.Status.Requests.ServedTime != nil)
			count["ready"] += one(b.node != nil && util.IsNodeReady(b.node))
			count["done"] += one(b.done())
		}
		all := len(boots) == machines && count["done"] == machines
		if all || time.Since(said) > 3*time.Second {
			said = time.Now()
			fmt.Printf("  %5.1f s  machines %d, hosts known %d, configs served %d, Nodes Ready %d, done %d\n",
				time.Since(began).Seconds(), len(boots), count["host"], count["served"], count["ready"], count["done"])
		}
		return all, nil
	})
	if err != nil {
		err = fmt.Errorf("the machines did not boot: %w", err)
	}
	return boots, err
}

// waitForPools returns when every pool has the condition Updated for its current generation, and the pools count all
// machines: the manager updates pools after the machines.
func waitForPools(ctx context.Context, s *site.Site) error {
	var late string
	err := wait.PollUntilContextTimeout(ctx, 250*time.Millisecond, poolTimeout, true, func(ctx context.Context) (bool, error) {
		var pools poolv1.MachineConfigPoolList
		if err := s.ManagementClient.List(ctx, &pools, client.InNamespace(site.Namespace)); err != nil {
			return false, err
		}
		late = notUpdated(pools.Items)
		return late == "", nil
	})
	if err != nil {
		return fmt.Errorf("the machines have booted, but %s: %w", late, err)
	}
	return nil
}

// notUpdated says which pool is not Updated and why, or how many machines the pools count if not all. It returns "" if
// all are Updated.
func notUpdated(pools []poolv1.MachineConfigPool) string {
	var counted int32
	for _, pool := range pools {
		counted += ptr.Deref(pool.Status.HostCount, 0)
		updated := conditions.Get(&pool, poolv1.UpdatedCondition)
		if updated == nil {
			return fmt.Sprintf("pool %s has no condition %s", pool.Name, poolv1.UpdatedCondition)
		}
		if updated.Status != metav1.ConditionTrue || updated.ObservedGeneration != pool.Generation {
			return fmt.Sprintf("pool %s is not %s: %s", pool.Name, poolv1.UpdatedCondition, updated.Message)
		}
	}
	if counted != machines {
		return fmt.Sprintf("the pools count %d machines of %d", counted, machines)
	}
	return ""
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

// explain describes what each machine is waiting for, with the last lines of the logs.
func explain(ctx context.Context, s *site.Site) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	var text strings.Builder
	boots, err := readBoots(ctx, s)
	if err != nil {
		return err.Error()
	}
	for _, b := range boots {
		fmt.Fprintf(&text, "Machine %s:\n", b.machine.Name)
		for _, c := range b.config.Status.Conditions {
			fmt.Fprintf(&text, "  %s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	for _, program := range []*site.Program{s.Manager, s.ConfigServer} {
		log, err := program.Log()
		if err != nil {
			log = err.Error()
		}
		text.WriteString(lastLines(log))
	}
	for _, b := range boots {
		if host := s.Hardware.Host(b.config.Status.HostRef.Name); host != nil {
			journal, err := host.Journal(ctx, "--unit=poolboot-agent.service")
			if err != nil {
				journal = err.Error()
			}
			fmt.Fprintf(&text, "Agent of %s:\n%s", host.Name(), lastLines(journal))
		}
	}
	text.WriteString("What to do: read the conditions, the logs and the journals above. `make demo KEEP=1` keeps everything running for you to inspect.")
	return text.String()
}

// lastLines returns the last lines of a log.
func lastLines(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "\n") + "\n"
}

// printTimeline prints when each machine completed each step. of returns the times of a machine.
func printTimeline(out io.Writer, boots []boot, of func(machine string) map[site.Step]time.Time) {
	fmt.Fprintln(out, "\n==> Timeline (seconds since the Machine was created)")
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(head string, cell func(boot) string) {
		fmt.Fprint(table, strings.ToUpper(head))
		for _, b := range boots {
			fmt.Fprint(table, "\t"+cell(b))
		}
		fmt.Fprintln(table)
	}
	row("Machine", func(b boot) string { return b.machine.Name })
	row("host", func(b boot) string { return b.config.Status.HostRef.Name })
	row("pool", func(b boot) string { return b.config.Status.PoolRole })
	for _, step := range site.Steps {
		row(string(step), func(b boot) string {
			steps := of(b.machine.Name)
			if when, seen := steps[step]; seen {
				return fmt.Sprintf("%.1f", when.Sub(steps[site.MachineCreated]).Seconds())
			}
			return "-"
		})
	}
	_ = table.Flush()
}
