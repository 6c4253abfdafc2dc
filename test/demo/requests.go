package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/controlplane"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/site"
)

// printRequests prints what Poolboot's two programs asked of both API servers since the machines were asked for, as the
// API servers' audit logs have it. Watches and their first lists are left out: they are there once, however many machines.
func printRequests(s *site.Site, since time.Time, boots []boot) error {
	count, total := map[string]int{}, 0
	for _, cluster := range []*controlplane.ControlPlane{s.Management, s.Workload} {
		requests, err := cluster.Requests()
		if err != nil {
			return err
		}
		for _, r := range requests {
			program, is := poolbootProgram(r)
			if !is || r.Received.Before(since) || r.Object.Resource == "" || r.Verb == "watch" || r.Verb == "list" {
				continue
			}
			resource := strings.TrimSuffix(r.Object.Resource+"/"+r.Object.Subresource, "/")
			count[fmt.Sprintf("%s\t%s\t%s\t%s", cluster.Name, program, r.Verb, resource)]++
			total++
		}
	}
	fmt.Printf("\n==> API requests of Poolboot for %d machines: %d, %.1f a machine (watches and their first lists left out)\n",
		len(boots), total, float64(total)/float64(len(boots)))
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CLUSTER\tPROGRAM\tVERB\tRESOURCE\tREQUESTS")
	for _, row := range slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	}) {
		fmt.Fprintf(table, "%s\t%d\n", row, count[row])
	}
	return table.Flush()
}

// poolbootProgram names the program of Poolboot that a request came from. In the workload cluster the manager has the
// rights of Cluster API's kubeconfig, so there only its user agent tells: the cluster cache puts the program's name first.
func poolbootProgram(r controlplane.Request) (string, bool) {
	if program, is := strings.CutPrefix(r.User.Name, "system:serviceaccount:poolboot-system:poolboot-"); is {
		return program, true
	}
	return "manager", strings.HasPrefix(r.UserAgent, "manager/")
}
