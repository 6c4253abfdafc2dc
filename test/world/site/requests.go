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

// RequestKind is a kind of request of Poolboot's programs.
type RequestKind struct {
	// Cluster is the name of the control plane, Program is manager or config-server.
	Cluster, Program string
	// Verb and Resource are those of the request. Resource includes the subresource after a slash.
	Verb, Resource string
}

// RequestCount counts the requests of a kind.
type RequestCount struct {
	// All is the number of requests, Conflicts the number of those that failed with a conflict.
	All, Conflicts int
}

// Requests counts the requests of Poolboot's two programs to both API servers since a time, from their audit logs. It
// omits watches and their lists, whose number does not depend on the number of Machines.
func (s *Site) Requests(since time.Time) (map[RequestKind]RequestCount, error) {
	counts := map[RequestKind]RequestCount{}
	for _, cluster := range []*controlplane.ControlPlane{s.Management, s.Workload} {
		err := cluster.EachRequest(func(r controlplane.Request) {
			program, ok := poolbootProgram(r)
			if !ok || r.Received.Before(since) || r.Object.Resource == "" || r.Verb == "watch" || r.Verb == "list" {
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

// RequestTime returns how long both API servers took on average to answer the requests of Poolboot's two programs
// between two times, without watches and lists.
func (s *Site) RequestTime(since, until time.Time) (time.Duration, error) {
	var took time.Duration
	count := 0
	for _, cluster := range []*controlplane.ControlPlane{s.Management, s.Workload} {
		if err := cluster.EachRequest(func(r controlplane.Request) {
			_, ok := poolbootProgram(r)
			if ok && !r.Received.Before(since) && r.Received.Before(until) && r.Verb != "watch" && r.Verb != "list" {
				took += r.Answered.Sub(r.Received)
				count++
			}
		}); err != nil {
			return 0, err
		}
	}
	return took / time.Duration(max(count, 1)), nil
}

// poolbootProgram returns the program of Poolboot that sent a request. In the workload cluster the manager has the user
// of Cluster API's kubeconfig, and is identified by its user agent: the cluster cache puts the program's name first.
func poolbootProgram(r controlplane.Request) (string, bool) {
	if program, ok := strings.CutPrefix(r.User.Name, "system:serviceaccount:poolboot-system:poolboot-"); ok {
		return program, true
	}
	return "manager", strings.HasPrefix(r.UserAgent, "manager/")
}

// PrintRequests prints requests as a table, the most frequent kinds first, and returns their number.
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
