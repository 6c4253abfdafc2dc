package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/site"
)

// printRequests prints what Poolboot's two programs asked of both API servers since the machines were asked for.
func printRequests(s *site.Site, since time.Time, boots []boot) error {
	count, err := s.Requests(since)
	if err != nil {
		return err
	}
	total := 0
	for _, n := range count {
		total += n
	}
	fmt.Printf("\n==> API requests of Poolboot for %d machines: %d, %.1f a machine (watches and their first lists left out)\n",
		len(boots), total, float64(total)/float64(len(boots)))
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CLUSTER\tPROGRAM\tVERB\tRESOURCE\tREQUESTS")
	for _, kind := range slices.SortedFunc(maps.Keys(count), func(a, b site.RequestKind) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	}) {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\n", kind.Cluster, kind.Program, kind.Verb, kind.Resource, count[kind])
	}
	return table.Flush()
}
