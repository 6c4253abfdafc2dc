package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
)

// result contains the numbers in the summary of the demo.
type result struct {
	machines, ready, bornInPool, poolChanges int
	// outside is the number of versions of Nodes that were not in the pool of the Node. filesOff is the number of hosts
	// that do not have exactly the files of their pool.
	outside, filesOff int
	// updated is the number of hosts that the change of their pool reached: with its content, after one reboot. maxAway
	// is the number of Nodes that were cordoned or not Ready at a time after all had booted.
	updated, maxAway int
	seconds          int
}

// String returns the last line of the demo.
func (r result) String() string {
	return fmt.Sprintf("demo: machines=%d ready=%d born-in-pool=%d pool-changes=%d updated=%d max-away=%d seconds=%d",
		r.machines, r.ready, r.bornInPool, r.poolChanges, r.updated, r.maxAway, r.seconds)
}

// check returns an error if a number is not the expected one.
func (r result) check() error {
	want := result{machines: machines, ready: machines, bornInPool: machines, updated: infraMachines, maxAway: 1, seconds: r.seconds}
	if r != want {
		return fmt.Errorf("unexpected result: got %+v, want %+v", r, want)
	}
	return nil
}

// printClusters prints the output of kubectl for pools and Nodes.
func printClusters(ctx context.Context, s *site.Site) error {
	pools, err := s.Kubectl(ctx, s.Management, "get", "machineconfigpools")
	if err != nil {
		return err
	}
	nodes, err := s.Kubectl(ctx, s.Workload, "get", "nodes", "--label-columns", poolv1.NodePoolLabel+","+poolv1.NodeMetal3UUIDLabel)
	if err != nil {
		return err
	}
	fmt.Printf("\n==> kubectl get machineconfigpools (management cluster)\n%s\n==> kubectl get nodes (workload cluster)\n%s", pools, nodes)
	return nil
}

// printVersions prints every version of every Node that the watch received.
func printVersions(ctx context.Context, s *site.Site, boots []boot, history *site.NodeHistory) error {
	pools, err := readPools(ctx, s)
	if err != nil {
		return err
	}
	fmt.Println("\n==> Every version of every Node that a watch on the workload cluster received")
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NODE\tVERSION\tROLES\tPOOL\tREADY\tTAINTS\tIN ITS POOL")
	for _, b := range boots {
		for _, v := range history.Of(b.node.Name) {
			verdict := site.Judge([]site.NodeVersion{v}, b.wanted(), pools)
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%t\t%s\t%t\n", v.Node.Name, v.Node.ResourceVersion, roles(v.Node),
				v.Node.Labels[poolv1.NodePoolLabel], util.IsNodeReady(v.Node), taints(v.Node), verdict.BornInPool)
		}
	}
	return table.Flush()
}

// prove checks every version of every Node that the watch received, and the disks of the hosts.
func prove(ctx context.Context, s *site.Site, boots []boot, history *site.NodeHistory) (result, error) {
	pools, err := readPools(ctx, s)
	if err != nil {
		return result{}, err
	}
	versions := history.Versions()
	r := count(boots, versions, pools)
	for _, b := range boots {
		r.filesOff += one(!holdsFiles(s, b))
	}
	fmt.Print("\n" + fill("==> ", fmt.Sprintf("Proof: %d versions of Nodes, %d of them outside their pool; Nodes that were cordoned or not Ready at a time: at most %d; "+
		"%d of %d hosts have exactly the files of their pool", len(versions), r.outside, r.maxAway, len(boots)-r.filesOff, len(boots))))
	return r, nil
}

// count counts what the versions of the Nodes tell.
func count(boots []boot, versions []site.NodeVersion, pools []poolv1.MachineConfigPool) result {
	r := result{machines: len(boots)}
	var nodes []string
	for _, b := range boots {
		if b.node == nil {
			continue
		}
		nodes = append(nodes, b.node.Name)
		own := slices.DeleteFunc(slices.Clone(versions), func(v site.NodeVersion) bool { return v.Node.Name != b.node.Name })
		verdict := site.Judge(own, b.wanted(), pools)
		r.ready += one(util.IsNodeReady(b.node))
		r.bornInPool += one(verdict.BornInPool)
		r.poolChanges += verdict.Changes
		r.outside += verdict.Outside
	}
	r.maxAway = site.MostAway(versions, time.Time{}, nodes...)
	return r
}

func readPools(ctx context.Context, s *site.Site) ([]poolv1.MachineConfigPool, error) {
	var pools poolv1.MachineConfigPoolList
	err := s.ManagementClient.List(ctx, &pools, client.InNamespace(site.Namespace))
	return pools.Items, err
}

// holdsFiles reports whether the disk of a host has the file of the worker pool, and the file of the infra pool only if
// the host is in that pool.
func holdsFiles(s *site.Site, b boot) bool {
	host := s.Hardware.Host(b.config.Status.HostRef.Name)
	worker, workerErr := host.ReadFile("/etc/workertest")
	infra, infraErr := host.ReadFile("/etc/infratest")
	inherited := workerErr == nil && string(worker) == "worker"
	if b.wanted() == "infra" {
		return inherited && infraErr == nil && string(infra) == "infra-2"
	}
	return inherited && os.IsNotExist(infraErr)
}

func roles(node *corev1.Node) string {
	var names []string
	for key := range node.Labels {
		if role, is := strings.CutPrefix(key, poolv1.NodeRoleLabelPrefix); is {
			names = append(names, role)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

func taints(node *corev1.Node) string {
	var names []string
	for _, taint := range node.Spec.Taints {
		names = append(names, taint.Key[strings.LastIndex(taint.Key, "/")+1:])
	}
	return strings.Join(names, ",")
}

// fill returns a text after a head, in lines of at most 120 columns.
func fill(head, text string) string {
	lines, width := head, len(head)
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case width+1+len(word) > 120:
			lines, width = lines+"\n"+strings.Repeat(" ", len(head)), len(head)
		default:
			lines, width = lines+" ", width+1
		}
		lines, width = lines+word, width+len(word)
	}
	return lines + "\n"
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ") + "\n"
}
