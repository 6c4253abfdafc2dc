package report

import (
	"context"
	_ "embed"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

// checkScript returns what is wrong with the page on the screen.
//
//go:embed testdata/check.js
var checkScript string

// evaluate returns the value of an expression in the page.
func evaluate[T any](browser context.Context, expression string) T {
	GinkgoHelper()
	value, err := chromedp.Run(browser, chromedp.Evaluate[T](expression))
	Expect(err).NotTo(HaveOccurred())
	return value
}

var _ = Describe("The page in a browser", Ordered, func() {
	var browser context.Context
	var file string

	BeforeAll(func() {
		program, err := exec.LookPath("chromium")
		Expect(err).NotTo(HaveOccurred(), "install it: hack/native-packages.sh --no-install-recommends chromium")
		file = clitest.WriteFile("report.html", report(newFleet(27, "edge-site-storage", "infra", "worker")))
		allocator, stop := chromedp.NewExecAllocator(context.Background(),
			append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox)...)
		DeferCleanup(stop)
		browser, stop = chromedp.NewContext(allocator)
		DeferCleanup(stop)
	})

	// open opens the page on a screen or, with the medium print, on paper.
	open := func(width int64, scheme, medium string) {
		GinkgoHelper()
		Expect(chromedp.Do(browser, chromedp.EmulateViewport(width, 900))).To(Succeed())
		_, err := chromedp.Call(browser, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Media: medium, Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		Expect(err).NotTo(HaveOccurred())
		Expect(chromedp.Do(browser, chromedp.Navigate("file://"+file))).To(Succeed())
	}

	DescribeTable("has charts with data, overflows nowhere and has the contrasts of WCAG AA",
		func(width int, scheme, medium string) {
			open(int64(width), scheme, medium)
			Expect(evaluate[int](browser, `innerWidth`)).To(Equal(width))
			Expect(evaluate[bool](browser, `matchMedia("(prefers-color-scheme: dark)").matches`)).To(Equal(scheme == "dark"))
			Expect(evaluate[[]string](browser, checkScript)).To(BeEmpty())
		},
		Entry("on a phone, light", 360, "light", "screen"),
		Entry("on a phone, dark", 360, "dark", "screen"),
		Entry("on a desktop, light", 1280, "light", "screen"),
		Entry("on a desktop, dark", 1280, "dark", "screen"),
		Entry("on paper", 720, "dark", "print"),
	)

	It("prints hosts that are hidden on a screen until a click", func() {
		const hidden = `[...document.querySelectorAll("#hosts td")].filter((td) => td.textContent && !td.checkVisibility()).length`
		open(720, "light", "print")
		Expect(evaluate[int](browser, `document.querySelectorAll("details").forEach((d) => d.open = false), `+hidden)).To(BeZero())
	})

	It("loads nothing, and has no link that leads nowhere", func() {
		open(1280, "light", "screen")
		Expect(evaluate[[]string](browser, `performance.getEntriesByType("resource").map((e) => e.name)`)).To(BeEmpty())
		Expect(evaluate[[]string](browser,
			`[...document.querySelectorAll("a")].map((a) => a.getAttribute("href")).filter((href) => !document.getElementById(href.slice(1)))`)).To(BeEmpty())
	})

	It("has every link and every part that opens in the order of the Tab key, with an outline", func() {
		open(1280, "light", "screen")
		all := evaluate[[]string](browser, `[...document.querySelectorAll("a, summary")].map((e) => e.textContent)`)
		Expect(len(all)).To(BeNumerically(">", 20))
		var reached []string
		for range all {
			Expect(chromedp.Do(browser, chromedp.KeyEvent(kb.Tab))).To(Succeed())
			reached = append(reached, evaluate[string](browser,
				`document.activeElement.textContent + (getComputedStyle(document.activeElement).outlineStyle == "none" ? " without an outline" : "")`))
		}
		Expect(reached).To(Equal(all))
		Expect(evaluate[[]string](browser, `[...document.querySelectorAll("main > section")].map((s) => s.id)`)).To(
			ConsistOf(evaluate[[]string](browser, `[...document.querySelectorAll("nav a")].map((a) => a.getAttribute("href").slice(1))`)))
	})

	It("is refreshed with --watch, keeps the focus and what is open, and says when it is not up to date", func(ctx SpecContext) {
		to := newFleet(9, "infra")
		o := &options{watch: true}
		isDown, hangs := atomic.Bool{}, atomic.Bool{}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if hangs.Load() {
				<-r.Context().Done()
			}
			cluster, err := to.Open()
			Expect(err).NotTo(HaveOccurred())
			page, err := o.render(ctx, cluster)
			Expect(err).NotTo(HaveOccurred())
			if isDown.Load() {
				http.Error(w, "list MachineConfigPools: connection refused", http.StatusBadGateway)
				return
			}
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = w.Write(page)
		}))
		DeferCleanup(func() {
			server.CloseClientConnections()
			server.Close()
		})
		Expect(chromedp.Do(browser, chromedp.Navigate(server.URL))).To(Succeed())
		evaluate[int](browser, strings.NewReplacer("10000", "100", "30000", "2000").Replace(string(watchScript)))
		evaluate[bool](browser, `document.querySelector("#pools summary").focus(), document.querySelector("#hosts details").open = false`)
		config := clitest.PoolbootConfig("infra", "infra-0003", "")
		Expect(to.Delete(ctx, config)).To(Succeed())
		Eventually(func() string { return evaluate[string](browser, `document.querySelector("#failed").textContent`) }).Should(ContainSubstring("None."))
		Expect(evaluate[string](browser, `document.activeElement.textContent`)).To(Equal("Values of the chart: Hosts of each pool"))
		Expect(evaluate[[]bool](browser, `[...document.querySelectorAll("#hosts details")].map((d) => d.open)`)).To(HaveExactElements(false, true, true, true, true))
		isDown.Store(true)
		Eventually(func() string { return evaluate[string](browser, `document.querySelector("#time").textContent`) }).Should(
			ContainSubstring("This page is not up to date: list MachineConfigPools: connection refused"))
		isDown.Store(false)
		Eventually(func() string { return evaluate[string](browser, `document.querySelector("#time").textContent`) }, "10s").ShouldNot(ContainSubstring("not up to date"))
		hangs.Store(true)
		Eventually(func() string { return evaluate[string](browser, `document.querySelector("#time").textContent`) }, "10s").Should(
			Equal("This page is not up to date: no answer in 30 seconds"))
	})

	It("is the picture in the documentation, which make picture takes", func() {
		picture := sourcetree.Path("docs", "report.png")
		if os.Getenv("UPDATE_PICTURE") != "" {
			open(1000, "light", "screen")
			png, err := chromedp.Run(browser, chromedp.CaptureScreenshot())
			Expect(err).NotTo(HaveOccurred())
			Expect(os.WriteFile(picture, png, 0o644)).To(Succeed())
		}
		shown, err := os.Stat(picture)
		Expect(err).NotTo(HaveOccurred())
		Expect(shown.Size()).To(BeNumerically("<", 150_000))
	})
})
