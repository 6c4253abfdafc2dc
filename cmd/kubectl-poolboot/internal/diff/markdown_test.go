package diff

import (
	"bytes"
	"encoding/json"
	"net/url"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/renderer/html"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = Describe("diff -o markdown", func() {
	worker, infra := clitest.Pool("infra-1", "worker"), clitest.Pool("infra-1", "infra")
	live := []string{worker, infra, clitest.Config("51-infra", "infra", `{kernelArguments: [quiet]}`)}
	// render returns the HTML of Markdown, as GitHub and GitLab do, with the HTML in it.
	render := func(markdown string) string {
		GinkgoHelper()
		var page bytes.Buffer
		Expect(goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithRendererOptions(html.WithUnsafe())).Convert([]byte(markdown), &page)).To(Succeed())
		return page.String()
	}

	It("prints a comment for a merge request, and exits with 1", func() {
		to := clitest.NewFakeConnection(live, clitest.PoolbootConfig("infra", "infra-b", "host-7"))
		r := runDiff(to, "-o", "markdown", "-f", clitest.WriteFile("new.yaml", clitest.Config("51-infra", "infra", `{kernelArguments: [quiet, nosmt]}`)))
		Expect(r.Code).To(Equal(1))
		Expect(regexp.MustCompile("[0-9a-f]{32}").ReplaceAllString(r.Out, "HASH")).To(Equal(strings.ReplaceAll(`### MachineConfigPool edge/infra &#40;Cluster infra-1&#41;

| | |
| --- | --- |
| Config | rendered-infra-HASH -&#62; rendered-infra-HASH |
| Reboot | yes&#58; kernelArguments |
| Machines | 1 |

<details><summary>Machines</summary>

| Machine | Effect |
| --- | --- |
| Machine infra-b, Node host-7 |  |

</details>

<details><summary>Changes</summary>

'''text
  ~ kernelArguments
       quiet
      +nosmt
'''

</details>
`, "'''", "```")))
		Expect(render(r.Out)).To(And(ContainSubstring("<h3>MachineConfigPool edge/infra (Cluster infra-1)</h3>"), ContainSubstring("<td>yes: kernelArguments</td>"), ContainSubstring("+nosmt\n</code></pre>\n</details>")))
	})

	It("says that nothing changes, and exits with 0", func() {
		Expect(runDiff(clitest.NewFakeConnection(live), "-o", "markdown", "-f", clitest.WriteFile("new.yaml", live...))).To(Equal(clitest.Result{Out: "No pool changes.\n"}))
	})

	It("refuses other formats, and hosts that were adopted", func() {
		clitest.ExpectError(runDiff(clitest.NewFakeConnection(live), "-o", "html", "-f", "new.yaml"), 2, "--output html is not known: use markdown, or leave the flag out")
		Expect(runDiff(clitest.NewFakeConnection(live), "-o", "markdown", "--node", "a").Code).To(Equal(2))
	})

	const evil = "`x` | @everyone <script>alert(1)</script> [a](https://evil.example) ![i](https://evil.example/i.png) www.evil.example **b** &lt; ~~s~~ #1 !2 \\| \u202e"
	DescribeTable("gives no text of files the power of markup", func(contents string) {
		config := map[string]any{"ignition": map[string]any{"version": "3.4.0"}, "storage": map[string]any{"files": []any{
			map[string]any{"path": "/etc/" + strings.ReplaceAll(evil, "/", ""), "contents": map[string]any{"source": "data:," + url.PathEscape(contents)}, "mode": 0o644},
		}}}
		spec, err := json.Marshal(map[string]any{"config": config})
		Expect(err).NotTo(HaveOccurred())
		r := runDiff(clitest.NewFakeConnection(live), "-o", "markdown", "-f", clitest.WriteFile("new.yaml", clitest.Config("51-infra", "infra", string(spec))))
		Expect(r.ErrOut).To(BeEmpty())
		Expect(r.Code).To(Equal(1))
		page := render(r.Out)
		Expect(page).NotTo(MatchRegexp("<(script|a|img|strong|em|del|h1|h2|hr|blockquote|li)[ >]"))
		for element, times := range map[string]int{"<h3": 1, "<table": 1, "<details>": 1, "</details>": 1, "<pre>": 1} {
			Expect(strings.Count(page, element)).To(Equal(times), element)
		}
		Expect(page).NotTo(ContainSubstring("\u202e"))
		Expect(page).To(HaveSuffix("</code></pre>\n</details>\n"))
	},
		Entry("in one line", evil),
		Entry("that ends a block of code", "a\n```\n# b\n</details>\n"+evil+"\n"),
		Entry("that ends a longer one", "a\n`````````\n~~~\n</code></pre></details>\n<script>x</script>\n"),
		Entry("with other line ends and control characters", "a\r```\rb\x00\x1b[2J\n\u2028```\n"),
		Entry("of backticks only", strings.Repeat("`", 1000)),
	)

	It("gives no text of one line the power of markup", func() {
		page := render("| | |\n| --- | --- |\n| a | " + inline(evil+"\n| b | c |\n# d") + " |\n")
		Expect(strings.Count(page, "<tr>")).To(Equal(2))
		Expect(page).NotTo(MatchRegexp("<(script|a|img|strong|em|del|code|h1)[ >]"))
		Expect(page).To(ContainSubstring("@everyone &lt;script&gt;"))
	})
})
