package site

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
)

// RequestKind is what kind of request one of Poolboot's programs made.
type RequestKind struct {
	// Cluster is the name of the control plane that was asked, Program manager or config-server.
	Cluster, Program string
	// Verb and Resource are what the request was for; a subresource follows its resource and a slash.
	Verb, Resource string
}

// RequestCount is how many requests of a kind there were.
type RequestCount struct {
	// All are all of them, Conflicts those that were refused because somebody else had written first.
	All, Conflicts int
}

// Requests counts what Poolboot's two programs asked of both API servers since a moment, as the API servers' audit logs
// have it. Watches and their first lists are left out: they are there once, however many machines.
func (s *Site) Requests(since time.Time) (map[RequestKind]RequestCount, error) {
	counts := map[RequestKind]RequestCount{}
	for _, cluster := range []*controlplane.ControlPlane{s.Management, s.Workload} {
		err := cluster.EachRequest(func(r controlplane.Request) {
			program, is := poolbootProgram(r)
			if !is || r.Received.Before(since) || r.Object.Resource == "" || r.Verb == "watch" || r.Verb == "list" {
				return
			}
			resource := strings.TrimSuffix(r.Object.Resource+"/"+r.Object.Subresource, "/")
			kind := RequestKind{cluster.Name, program, r.Verb, resource}
			count := counts[kind]
			count.All++
			if r.Response.Code == http.StatusConflict {
				count.Conflicts++
			}
			counts[kind] = count
		})
		if err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// poolbootProgram names the program of Poolboot that a request came from. In the workload cluster the manager has the
// rights of Cluster API's kubeconfig, so there only its user agent tells: the cluster cache puts the program's name
// first.
func poolbootProgram(r controlplane.Request) (string, bool) {
	if program, is := strings.CutPrefix(r.User.Name, "system:serviceaccount:poolboot-system:poolboot-"); is {
		return program, true
	}
	return "manager", strings.HasPrefix(r.UserAgent, "manager/")
}

// PrintRequests prints requests as a table, the most frequent kinds first, and returns how many there were.
func PrintRequests(to io.Writer, counts map[RequestKind]RequestCount) (total int, err error) {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CLUSTER\tPROGRAM\tVERB\tRESOURCE\tREQUESTS\tCONFLICTS")
	for _, kind := range slices.SortedFunc(maps.Keys(counts), func(a, b RequestKind) int {
		return cmp.Or(cmp.Compare(counts[b].All, counts[a].All), cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	}) {
		total += counts[kind].All
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%d\n", kind.Cluster, kind.Program, kind.Verb, kind.Resource, counts[kind].All, counts[kind].Conflicts)
	}
	return total, table.Flush()
}
