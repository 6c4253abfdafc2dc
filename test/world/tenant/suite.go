package tenant

import (
	"context"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
)

// StartSite starts a site for a suite, in its BeforeSuite, and stops it when the suite has ended.
func StartSite(ctx context.Context, options site.Options) *site.Site {
	GinkgoHelper()
	EnforceDefaultTimeoutsWhenUsingContexts()
	options.Progress = GinkgoWriter
	// The site outlives the node whose context this is.
	s, err := site.Start(context.WithoutCancel(ctx), options)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(s.Stop()).To(Succeed()) })
	return s
}

// ShowLogs adds the end of what Poolboot's programs have printed to the report of a spec that failed: it helps more
// than anything. It is for ReportAfterEach.
func ShowLogs(report SpecReport, sites ...*site.Site) {
	if !report.Failed() || slices.Contains(sites, nil) {
		return
	}
	for _, s := range sites {
		for _, program := range []*site.Program{s.Manager, s.ConfigServer} {
			log, _ := program.Log()
			AddReportEntry("log", log[max(0, len(log)-16_000):])
		}
	}
}
