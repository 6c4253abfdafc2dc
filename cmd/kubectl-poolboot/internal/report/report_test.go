package report

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/net/html"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

// elements returns the names of the elements of a page and of their attributes.
func elements(page string) map[string]bool {
	GinkgoHelper()
	document, err := html.Parse(strings.NewReader(page))
	Expect(err).NotTo(HaveOccurred())
	found := map[string]bool{}
	for n := range document.Descendants() {
		if n.Type == html.ElementNode {
			found[n.Data] = true
			for _, a := range n.Attr {
				found[a.Key] = true
			}
		}
	}
	return found
}

// rowsOf returns the rows of the tables in a section, each as one text.
func rowsOf(page, section string) (rows []string) {
	GinkgoHelper()
	document, err := html.Parse(strings.NewReader(page))
	Expect(err).NotTo(HaveOccurred())
	var text func(n *html.Node) string
	text = func(n *html.Node) (all string) {
		if n.Type == html.TextNode {
			return n.Data
		}
		for c := range n.ChildNodes() {
			all += text(c) + " "
		}
		return all
	}
	for n := range document.Descendants() {
		if n.Data == "section" && len(n.Attr) > 0 && n.Attr[0].Val == section {
			for c := range n.Descendants() {
				if c.Type == html.ElementNode && (c.Data == "tr" || c.Data == "p" || c.Data == "summary" || c.Data == "li") {
					rows = append(rows, strings.Join(strings.Fields(text(c)), " "))
				}
			}
		}
	}
	return rows
}

var _ = Describe("report", func() {
	It("shows the pools, hosts that need a person, failure domains, configs, drift and what expires", func() {
		page := report(newFleet(9, "infra", "worker"), "-A")
		Expect(page).To(ContainSubstring("<h1>Poolboot: all namespaces</h1>"))
		Expect(rowsOf(page, "pools")).To(ContainElement(HavePrefix("infra edge/infra-1 infra@1761d995 5/9 2 1 host infra-0003: Degraded: ")))
		Expect(rowsOf(page, "failed")).To(ContainElement(SatisfyAll(HavePrefix("rack3-u03 infra Degraded "),
			HaveSuffix("the update of Node infra-0003 to infra@1761d995 failed and was undone: the kubelet was not Ready within 10m: "+
				"see journalctl -u kubelet.service on the host, and correct the MachineConfigs"))))
		Expect(rowsOf(page, "hosts")).To(ContainElements("rack-1 : 1 updated, 1 being updated",
			MatchRegexp(`^rack1-u05 infra-0005 Rebooting 4m\w* infra@6db67f47 infra@1761d995 Node infra-0005 reboots`), HavePrefix("rack0-u08 Preparing ")))
		Expect(rowsOf(page, "configs")).To(ContainElement("infra@1761d995 infra 5 infra, rack-0: 2; infra, rack-1: 1; infra, rack-2: 1; infra, rack-3: 1"))
		Expect(rowsOf(page, "drift")).To(ContainElements("rack3-u07 infra /etc/motd: Content; /etc/chrony.conf: Missing", "rack0-u04 infra keeps its disks instead of disk /dev/sdb, filesystem /dev/sdb1"))
		Expect(rowsOf(page, "expirations")).To(ContainElements(HavePrefix("Token of Enrollment edge/site in 2d"),
			HavePrefix("Join credential of PoolbootConfig edge/infra-0008-config in 59m"), HavePrefix("Certificates of the control plane on Machine edge/control-plane-0 in 299d")))
		Expect(rowsOf(page, "boots")).To(ContainElement(HavePrefix("rack0-u08 1 0 ")), "the values of the chart")
	})

	It("shows names, labels and messages with HTML as text", func() {
		const evil = `</title></style></svg><script>alert(1)</script><img src=x onerror=alert(1)>"'`
		config, node := newHost("infra", 3, time.Now())
		config.Status.HostRef.Name, config.Status.Update.Desired.Name = evil, evil
		for i := range config.Status.Conditions {
			config.Status.Conditions[i].Message = evil
		}
		pool := newPool("infra")
		pool.Spec.ClusterName, pool.Status.Configuration.Name = "infra-1", evil
		node.Labels[rackLabel] = evil
		to := &clitest.FakeConnection{WithWatch: clitest.NewFakeClientBuilder(pool, config).Build(), Own: clitest.NewFakeClientBuilder(node).Build()}
		page := report(to)
		Expect(strings.Count(page, "&lt;script&gt;")).To(BeNumerically(">", 5))
		Expect(elements(page)).To(SatisfyAll(HaveKey("svg"), Not(HaveKey("script")), Not(HaveKey("img")), Not(HaveKey("onerror"))))
		Expect(rowsOf(page, "failed")).To(ContainElement(ContainSubstring(evil)))
	})

	It("has no characters that control a terminal on which it is printed", func() {
		config, node := newHost("infra", 3, time.Now())
		config.Status.Conditions[1].Message = "\x1b]0;owned\a\u009b2J\r"
		node.Labels[rackLabel] = "rack\x1b[2J" // of a server that a tenant runs
		to := &clitest.FakeConnection{WithWatch: clitest.NewFakeClientBuilder(newPool("infra"), config).Build(), Own: clitest.NewFakeClientBuilder(node).Build()}
		page := report(to)
		Expect(page).To(ContainSubstring("owned"))
		Expect(page).NotTo(ContainSubstring("\x1b"))
		Expect(strings.ContainsFunc(page, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' })).To(BeFalse())
	})

	It("gives every element an id of its own, whatever the names of namespaces", func() {
		a, _ := newHost("infra", 8, time.Now())
		b, _ := newHost("worker", 8, time.Now())
		a.Namespace, b.Namespace = "a", "a-0"
		page := report(&clitest.FakeConnection{WithWatch: clitest.NewFakeClientBuilder(a, b).Build(), Own: clitest.NewFakeClientBuilder().Build()}, "-A")
		ids := map[string]int{}
		for _, id := range regexp.MustCompile(` id="[^"]*"`).FindAllString(page, -1) {
			ids[id]++
		}
		Expect(ids).To(HaveEach(1))
	})

	It("says what can't be read, and shows the rest", func() {
		to := newFleet(9, "infra")
		to.Own = nil // the Secret of the kubeconfig may not be read
		to.WithWatch = interceptor.NewClient(to.WithWatch, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, is := list.(*poolv1.EnrollmentList); is {
				return errors.New("enrollments is forbidden")
			}
			return c.List(ctx, list, opts...)
		}})
		page := report(to)
		Expect(rowsOf(page, "unread")).To(ContainElements("list Enrollments: enrollments is forbidden",
			"the Nodes of Cluster edge/infra-1, so drift and labels of Nodes are missing: secrets is forbidden"))
		Expect(rowsOf(page, "hosts")).To(ContainElement("no failure domain : 5 updated, 1 being updated, 1 waiting for an update, 1 booting, 1 needs you to act"))
	})

	It("shows the beginning of a message that is too long", func() {
		host, _ := newHost("infra", 0, time.Now())
		host.Status.Conditions = []metav1.Condition{{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionFalse, Reason: bootstrapv1.NodeMissingReason, Message: "its Node " + strings.Repeat("x", 30000)}}
		page := report(&clitest.FakeConnection{WithWatch: clitest.NewFakeClientBuilder(newPool("infra"), host).Build(), Own: clitest.NewFakeClientBuilder().Build()})
		Expect(page).To(ContainSubstring("its Node xxx"))
		Expect(page).NotTo(ContainSubstring(strings.Repeat("x", 601)))
	})

	It("shows pools without hosts, hosts without a Node and hosts without a pool", func() {
		lost, _ := newHost("infra", 0, time.Now())
		lost.Status.Conditions = []metav1.Condition{{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionFalse, Reason: bootstrapv1.NodeMissingReason, Message: "its Node does not exist"}}
		none, _ := newHost("gpu", 8, time.Now())
		to := &clitest.FakeConnection{WithWatch: clitest.NewFakeClientBuilder(newPool("infra"), newPool("worker"), lost, none).Build(), Own: clitest.NewFakeClientBuilder().Build()}
		page := report(to)
		Expect(rowsOf(page, "hosts")).To(ContainElements("The pool has no hosts.", HavePrefix("rack0-u08 Preparing")))
		Expect(rowsOf(page, "failed")).To(ContainElement(SatisfyAll(HavePrefix("rack0-u00 infra NodeMissing"), HaveSuffix("its Node does not exist"))))

		empty := &clitest.FakeConnection{WithWatch: clitest.NewFakeClientBuilder().Build()}
		Expect(rowsOf(report(empty), "pools")).To(Equal([]string{"There are no pools."}))
	})

	It("shows an adopted host that is as it was found in no pool, with what it waits for", func() {
		found := clitest.AdoptedConfig("edge-7", bootstrapv1.AdoptionPreviewReason, "Its pool changes nothing on it")
		page := report(&clitest.FakeConnection{WithWatch: clitest.NewFakeClientBuilder(newPool("infra"), found).Build(), Own: clitest.NewFakeClientBuilder().Build()})
		Expect(rowsOf(page, "hosts")).To(ContainElements("The pool has no hosts.", SatisfyAll(HavePrefix("edge-7 edge-7 AsFound"), HaveSuffix("Its pool changes nothing on it"))))
	})

	It("has at most 5 MB whatever the fleet, and says what is not on the page", func() {
		now, evil := time.Now(), strings.Repeat(`"<&`, 300)
		for _, size := range []struct{ pools, perPool int }{{3000, 1}, {1, 6000}} {
			f := &fleet{nodes: map[client.ObjectKey]map[string]*corev1.Node{{Namespace: "edge", Name: "infra-1"}: {}}}
			for n := range size.pools {
				role := fmt.Sprintf("pool-%d", n)
				f.pools = append(f.pools, *newPool(role))
				f.unread = append(f.unread, evil)
				for i := range size.perPool {
					config, node := newHost(role, i+n*size.perPool, now)
					for c := range config.Status.Conditions {
						config.Status.Conditions[c].Message = evil
					}
					f.configs = append(f.configs, *config)
					if node != nil {
						node.Labels[rackLabel] = node.Name
						f.nodes[client.ObjectKey{Namespace: "edge", Name: "infra-1"}][node.Name] = node
					}
				}
			}
			start := time.Now()
			page, err := f.render(now, false)
			Expect(err).NotTo(HaveOccurred())
			AddReportEntry(fmt.Sprintf("%d pools of %d hosts", size.pools, size.perPool), fmt.Sprintf("%.1f MB in %s", float64(len(page))/1e6, time.Since(start)), ReportEntryVisibilityAlways)
			Expect(len(page)).To(BeNumerically("<=", maxPage))
			Expect(rowsOf(string(page), "parts")).To(ContainElements(ContainSubstring("kubectl poolboot rollout status POOL -n NAMESPACE"),
				MatchRegexp(`^hosts by failure domain: \d+ of %d$`, size.pools*size.perPool)))
			document, err := html.Parse(bytes.NewReader(page))
			Expect(err).NotTo(HaveOccurred())
			targets := map[string]bool{}
			for n := range document.Descendants() {
				for _, a := range n.Attr {
					targets[a.Key+"="+a.Val] = true
				}
			}
			for target := range targets {
				if at, isLink := strings.CutPrefix(target, "href=#"); isLink {
					Expect(targets).To(HaveKey("id=" + at))
				}
			}
		}
	})

	It("has charts of the pools with the most that is wrong, and then the most hosts", func() {
		f, now := &fleet{}, time.Now()
		for n := range maxCharts + 10 {
			role, hosts := fmt.Sprintf("pool-%02d", n), 1+n%2 // hosts 0 to 2 are as they should be
			f.pools = append(f.pools, *newPool(role))
			if n == 4 {
				hosts = 4 // the last of them failed
			}
			for i := range hosts {
				config, _ := newHost(role, i, now)
				f.configs = append(f.configs, *config)
			}
		}
		page, err := f.render(now, false)
		Expect(err).NotTo(HaveOccurred())
		Expect(rowsOf(string(page), "parts")).To(ContainElement("pools with charts: 60 of 70"))
		charts := regexp.MustCompile(`<figcaption>Boots of (pool-\d+)`).FindAllStringSubmatch(string(page), -1)
		Expect(charts).To(HaveLen(maxCharts))
		Expect(charts).To(ContainElements(ContainElement("pool-04"), ContainElement("pool-69")))
		Expect(charts).NotTo(ContainElement(ContainElement("pool-68")))
		Expect(rowsOf(string(page), "hosts")).To(ContainElement(ContainSubstring("pool-68-0000")), "rows are for all")
	})

	It("has at most 5 MB for 5,000 hosts, and shows all", func() {
		for _, perPool := range []int{100, 5000} {
			var roles []string
			for i := range 5000 / perPool {
				roles = append(roles, fmt.Sprintf("pool-%d", i))
			}
			to := newFleet(perPool, roles...)
			start := time.Now()
			page := report(to)
			AddReportEntry(fmt.Sprintf("%d pools", len(roles)), fmt.Sprintf("%.1f MB in %s", float64(len(page))/1e6, time.Since(start)), ReportEntryVisibilityAlways)
			Expect(len(page)).To(BeNumerically("<=", maxPage))
			Expect(rowsOf(page, "parts")).To(BeEmpty())
		}
	})

	Describe("--watch", func() {
		It("serves the page on loopback, only under its own name, until it is interrupted", func(ctx SpecContext) {
			ctx2, interrupt := context.WithCancel(ctx)
			out, terminal := io.Pipe()
			cmd := New(genericiooptions.IOStreams{Out: terminal, ErrOut: GinkgoWriter}, newFleet(2, "infra"))
			cmd.SetArgs([]string{"--watch"})
			done := make(chan error, 1)
			go func() { done <- cmd.ExecuteContext(ctx2) }()
			line, err := bufio.NewReader(out).ReadString('\n')
			Expect(err).NotTo(HaveOccurred())
			Expect(line).To(MatchRegexp(`^The report is at http://127\.0\.0\.1:\d+/ until you interrupt this command\.\n$`))
			url := strings.Fields(line)[4]
			get := func(path, host string) (int, string) {
				request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+path, nil)
				Expect(err).NotTo(HaveOccurred())
				request.Host = host
				response, err := http.DefaultClient.Do(request)
				Expect(err).NotTo(HaveOccurred())
				defer response.Body.Close()
				body, err := io.ReadAll(response.Body)
				Expect(err).NotTo(HaveOccurred())
				return response.StatusCode, string(body)
			}
			code, page := get("", "localhost:8000")
			Expect(code).To(Equal(http.StatusOK))
			Expect(page).To(SatisfyAll(ContainSubstring(`<script src="watch.js"`), ContainSubstring("script-src 'self'; connect-src 'self'")))
			_, script := get("watch.js", "127.0.0.1")
			Expect(script).To(ContainSubstring("fetch"))
			code, page = get("", "rebound.example.com")
			Expect(code).To(Equal(http.StatusForbidden))
			Expect(page).NotTo(ContainSubstring("infra"))
			interrupt()
			Eventually(done).Should(Receive(BeNil()))
		})

		It("reads the cluster once for all viewers, also if that fails", func(ctx SpecContext) {
			to, reads := newFleet(1, "infra"), atomic.Int32{}
			to.WithWatch = interceptor.NewClient(to.WithWatch, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				reads.Add(1)
				return errors.New("etcd is down")
			}})
			ctx2, interrupt := context.WithCancel(ctx)
			defer interrupt()
			out, terminal := io.Pipe()
			cmd := New(genericiooptions.IOStreams{Out: terminal, ErrOut: GinkgoWriter}, to)
			cmd.SetArgs([]string{"--watch"})
			go func() { _ = cmd.ExecuteContext(ctx2) }()
			line, err := bufio.NewReader(out).ReadString('\n')
			Expect(err).NotTo(HaveOccurred())
			for range 3 {
				response, err := http.Get(strings.Fields(line)[4])
				Expect(err).NotTo(HaveOccurred())
				Expect(response).To(HaveHTTPStatus(http.StatusBadGateway))
				Expect(response).To(HaveHTTPBody(ContainSubstring("etcd is down")))
			}
			Expect(reads.Load()).To(BeEquivalentTo(1))
		})

		It("says what to do if its port is taken, and refuses --port without it", func() {
			taken, err := net.Listen("tcp", "127.0.0.1:0")
			Expect(err).NotTo(HaveOccurred())
			defer taken.Close()
			_, port, _ := net.SplitHostPort(taken.Addr().String())
			clitest.ExpectError(clitest.RunOn(newFleet(1, "infra"), New, "report", "--watch", "--port", port), 1, "--port "+port, "address already in use: set another port")
			clitest.ExpectError(clitest.RunOn(newFleet(1, "infra"), New, "report", "--port", port), 1, "--port needs --watch: set both, or leave out --port")
		})
	})
})
