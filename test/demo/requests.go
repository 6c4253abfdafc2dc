package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
)

// printRequests prints the requests of Poolboot's two programs to both API servers since the machines were created.
func printRequests(s *site.Site, since time.Time, boots []boot) error {
	counts, err := s.Requests(since)
	if err != nil {
		return err
	}
	var table strings.Builder
	total, err := site.PrintRequests(&table, counts)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(os.Stdout, "\n==> API requests of Poolboot for %d machines: %d, %.1f per machine (without watches and their initial lists)\n%s",
		len(boots), total, float64(total)/float64(len(boots)), &table)
	return err
}
