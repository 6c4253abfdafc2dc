package tenant

import (
	"context"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
)

// StartSite starts a site in BeforeSuite, and stops it at the end of the suite.
func StartSite(ctx context.Context, options site.Options) *site.Site {
	GinkgoHelper()
	EnforceDefaultTimeoutsWhenUsingContexts()
	options.Progress = GinkgoWriter
	// The context of BeforeSuite is canceled when it returns.
	s, err := site.Start(context.WithoutCancel(ctx), options)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(s.Stop()).To(Succeed()) })
	return s
}

// ShowLogs adds the end of the logs of Poolboot's programs to the report of a failed spec. It is for ReportAfterEach.
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
