package service

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/unitstate"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
)

var _ = Describe("The agent on a host", func() {
	state := func(w *world) func() string {
		return func() string {
			return w.annotation(agentv1.StateAnnotation) + " " + w.annotation(agentv1.TargetAnnotation)
		}
	}

	It("waits until the host has joined, adopts its configuration, updates it, and finds changes by hand within seconds", func() {
		w := newWorld()
		w.install("rendered-a", "a")
		first := w.offer("rendered-a", "a")
		s := w.service()
		s.lookInterval = 50 * time.Millisecond
		stop := start(s)
		Consistently(state(w), "300ms").Should(Equal(" "))
		w.join(time.Now().Add(time.Hour))
		Eventually(state(w), "15s").Should(Equal("Done " + first))
		By("updating it")
		second := w.offer("rendered-b", "b")
		Eventually(state(w), "15s").Should(Equal("Done " + second))
		Expect(w.read("/etc/motd")).To(Equal("b"))
		By("changing it by hand")
		w.write("/etc/motd", "by hand")
		Eventually(func() string { return w.annotation(agentv1.DriftAnnotation) }, "5s").Should(Equal("/etc/motd: Content"))
		Expect(state(w)()).To(Equal("Degraded " + second))
		w.write("/etc/motd", "b")
		Eventually(state(w), "5s").Should(Equal("Done " + second))
		By("stopping it")
		Expect(stop()).To(Succeed())
		By("starting it again")
		start(w.service())
		third := w.offer("rendered-c", "c")
		Eventually(state(w), "15s").Should(Equal("Done " + third))
	})

	It("reports a kubelet that ends again and again within seconds, although nothing else changes", func() {
		w := newWorld()
		w.install("rendered-a", "a")
		first := w.offer("rendered-a", "a")
		w.join(time.Now().Add(time.Hour))
		s := w.service()
		s.lookInterval = 50 * time.Millisecond
		start(s)
		Eventually(state(w), "15s").Should(Equal("Done " + first))
		w.mu.Lock()
		w.kubelet = unitstate.State{Active: "activating", Sub: "auto-restart", Result: "exit-code", ExitStatus: 1, Restarts: 3}
		w.mu.Unlock()
		Eventually(func() string { return w.annotation(agentv1.FailingUnitsAnnotation) }, "5s").
			Should(Equal("kubelet.service: it ended, and systemd starts it again: result exit-code, exit status 1"))
	})

	It("says that it has stopped with the version of its report, also if it never reported anything else", func() {
		w := newWorld()
		w.join(time.Now().Add(time.Hour))
		Expect(w.service().ReportStop(context.Background())).To(Succeed())
		Expect(w.annotation(agentv1.BootAnnotation)).To(Equal(agentv1.AgentStopped))
		Expect(w.annotation(agentv1.ReportVersionAnnotation)).To(Equal(strconv.Itoa(agentv1.ReportVersion)))
	})

	It("says that it runs again before what it goes on with has ended, which can take an hour", func() {
		w := newWorld()
		silent, err := net.Listen("tcp", "127.0.0.1:0") // it accepts, and answers nothing
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(silent.Close)
		w.write(assignment.SettingsPath, strings.ReplaceAll(w.read(assignment.SettingsPath), w.config.Listener.Addr().String(), silent.Addr().String()))
		w.install("rendered-a", "a")
		w.offer("rendered-a", "a")
		w.join(time.Now().Add(time.Hour))
		stopped := agentv1.AgentStopped
		w.annotate(map[string]*string{agentv1.BootAnnotation: &stopped})
		s := w.service()
		s.Program = &Program{Root: w.root, Path: assignment.ProgramPath, Version: "v0.1.0"}
		start(s)
		Eventually(func() string { return w.annotation(agentv1.BootAnnotation) }, "5s").Should(Equal(Clock{}.BootID()))
		Expect(w.annotation(agentv1.CurrentAnnotation)).To(BeEmpty(), "it still waits")
	})

	It("logs once why it can't read its Node, and that it can again", func() {
		buffer := gbytes.NewBuffer()
		s := &Service{Log: slog.New(slog.NewTextHandler(buffer, nil))}
		seen := 0
		see := s.logging(func(agent.Node) { seen++ })
		for _, node := range []agent.Node{{Known: true}, {Problem: "refused"}, {Problem: "refused"}, {Problem: "timeout"}, {Known: true}, {Known: true}} {
			see(node)
		}
		Expect(seen).To(Equal(6))
		Expect(strings.Count(string(buffer.Contents()), "\n")).To(Equal(3))
		Expect(buffer).To(gbytes.Say("error=refused"))
		Expect(buffer).To(gbytes.Say("error=timeout"))
		Expect(buffer).To(gbytes.Say("the agent reads its Node again"))
	})

	It("tries again soon after an outage of the config server in which its Node changed often", func() {
		w, buffer := newWorld(), gbytes.NewBuffer()
		w.install("rendered-a", "a")
		w.join(time.Now().Add(time.Hour))
		first := w.offer("rendered-a", "a")
		s := w.service()
		s.Log = slog.New(slog.NewTextHandler(buffer, nil))
		start(s)
		Eventually(state(w), "15s").Should(Equal("Done " + first))
		w.mu.Lock()
		w.expires = time.Now() // the config server refuses
		w.mu.Unlock()
		w.offer("rendered-b", "b")
		for i := range 20 {
			Eventually(buffer, "15s").Should(gbytes.Say("the agent tries again"))
			w.annotate(map[string]*string{"example.com/changed": new(strconv.Itoa(i))})
		}
		for _, wait := range regexp.MustCompile(`after=(\S+)`).FindAllStringSubmatch(string(buffer.Contents()), -1) {
			Expect(time.ParseDuration(wait[1])).To(BeNumerically("<", 4*firstRetry))
		}
	})

	It("undoes an update in time although the API server refuses every report, as without the quorum of etcd", func() {
		w, buffer := newWorld(), gbytes.NewBuffer()
		w.install("rendered-a", "a")
		w.join(time.Now().Add(time.Hour))
		first := w.offer("rendered-a", "a")
		s := w.service()
		s.Log = slog.New(slog.NewTextHandler(buffer, nil))
		start(s)
		Eventually(state(w), "15s").Should(Equal("Done " + first))
		second := w.offer("rendered-b", "b", func(a *assignment.Assignment) { a.MinReadySeconds, a.ReadyDeadlineSeconds = 10, 30 })
		Eventually(func() string { return w.read("/etc/motd") }, "15s").Should(Equal("b"))
		w.mu.Lock()
		w.refuses, w.kubelet = true, unitstate.State{Active: "failed", Result: "exit-code"}
		w.mu.Unlock()
		Eventually(buffer, "50s").Should(gbytes.Say("from=Verifying to=Undoing"))
		before, _, _ := strings.Cut(string(buffer.Contents()), "from=Verifying to=Undoing")
		for _, wait := range regexp.MustCompile(`after=(\S+)`).FindAllStringSubmatch(before, -1) {
			Expect(time.ParseDuration(wait[1])).To(BeNumerically("<=", 5*time.Second), "as long as the agent waits for its Node at most")
		}
		Eventually(func() string { return w.read("/etc/motd") }, "15s").Should(Equal("a"))
		w.mu.Lock()
		w.refuses = false
		w.mu.Unlock()
		Eventually(state(w), "40s").Should(Equal("Degraded " + second))
	})

	It("reports a damaged journal, and changes nothing", func() {
		w := newWorld()
		w.install("rendered-a", "a")
		w.join(time.Now().Add(time.Hour))
		first := w.offer("rendered-a", "a")
		stop := start(w.service())
		Eventually(state(w), "15s").Should(Equal("Done " + first))
		Expect(stop()).To(Succeed())
		for _, name := range []string{"agent/agent.journal", "files.journal"} {
			journal := filepath.Join("/var/lib/poolboot", name)
			intact := w.read(journal)
			w.write(journal, "damaged")
			stop = start(w.service())
			Eventually(state(w), "15s").Should(Equal("Degraded " + first))
			Expect(w.annotation(agentv1.ReasonAnnotation)).To(ContainSubstring(journal))
			Expect(w.read("/etc/motd")).To(Equal("a"))
			Expect(stop()).To(Succeed())
			w.write(journal, intact)
			stop = start(w.service())
			Eventually(state(w), "15s").Should(Equal("Done " + first))
			Expect(stop()).To(Succeed())
		}
	})

	It("reports missing and damaged settings, and works again when they are written", func() {
		w := newWorld()
		w.install("rendered-a", "a")
		w.join(time.Now().Add(time.Hour))
		first := w.offer("rendered-a", "a")
		intact := w.read(assignment.SettingsPath)
		for _, damage := range []func(){
			func() { w.write(assignment.SettingsPath, "{") },
			func() { Expect(os.Remove(filepath.Join(w.directory, assignment.SettingsPath))).To(Succeed()) },
		} {
			damage()
			ended := make(chan error, 1)
			go func() { ended <- w.service().Run(GinkgoT().Context()) }()
			Eventually(state(w), "15s").Should(Equal("Degraded " + first))
			Expect(w.annotation(agentv1.ReasonAnnotation)).To(And(ContainSubstring(filepath.Base(assignment.SettingsPath)), ContainSubstring("write the file again")))
			Consistently(ended, "300ms").ShouldNot(Receive(), "it does not start again and again")
			w.write(assignment.SettingsPath, intact)
			Eventually(ended, "15s").Should(Receive(MatchError(errOtherSettings)))
			stop := start(w.service())
			Eventually(state(w), "15s").Should(Equal("Done " + first))
			Expect(stop()).To(Succeed())
		}
	})

	It("starts again when an update changed how the config server is reached", func() {
		w := newWorld()
		w.install("rendered-a", "a")
		w.join(time.Now().Add(time.Hour))
		first := w.offer("rendered-a", "a")
		ended := make(chan error, 1)
		go func() { ended <- w.service().Run(context.Background()) }()
		Eventually(state(w), "15s").Should(Equal("Done " + first))
		Consistently(ended, "300ms").ShouldNot(Receive())
		w.write(assignment.SettingsPath, w.read(assignment.SettingsPath)+" ")
		w.offer("rendered-b", "b")
		Eventually(ended, "15s").Should(Receive(MatchError(ContainSubstring("/etc/poolboot/agent.json changed"))))
	})

	It("identifies itself by the certificate that the kubelet renewed last", func() {
		w := newWorld()
		w.install("rendered-a", "a")
		w.join(time.Now().Add(time.Hour))
		first := w.offer("rendered-a", "a")
		start(w.service())
		Eventually(state(w), "15s").Should(Equal("Done " + first))
		renewed := time.Now().Add(2 * time.Hour).Truncate(time.Second)
		w.join(renewed)
		w.mu.Lock()
		w.expires = renewed
		w.mu.Unlock()
		second := w.offer("rendered-b", "b")
		Eventually(state(w), "15s").Should(Equal("Done " + second))
	})

	It("can be checked while another one runs, without changing anything", func() {
		w := newWorld()
		w.install("rendered-a", "a")
		w.join(time.Now().Add(time.Hour))
		first := w.offer("rendered-a", "a")
		start(w.service())
		Eventually(state(w), "15s").Should(Equal("Done " + first))
		Expect(w.service().Check(context.Background())).To(Succeed())
		w.config.Close()
		Expect(w.service().Check(context.Background())).To(MatchError(ContainSubstring("download the assignment")))
	})
})

var _ = Describe("The registration before the kubelet", func() {
	It("returns when the Node is registered, and tries again until then", func() {
		w := newWorld()
		w.join(time.Now().Add(time.Hour))
		w.register = func(response http.ResponseWriter) {
			if w.registered == 1 {
				response.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			response.WriteHeader(http.StatusNoContent)
		}
		Expect(w.service().Register(context.Background())).To(Succeed())
		Expect(w.registered).To(Equal(2))
	})

	It("gives up at once if the config server refuses it", func() {
		w := newWorld()
		w.join(time.Now().Add(time.Hour))
		w.register = func(response http.ResponseWriter) { response.WriteHeader(http.StatusForbidden) }
		Expect(w.service().Register(context.Background())).To(MatchError(ContainSubstring("403")))
		Expect(w.registered).To(Equal(1))
	})

	It("gives up at once without a certificate", func() {
		w := newWorld()
		Expect(w.service().Register(context.Background())).To(MatchError(ContainSubstring("has not joined")))
		Expect(w.registered).To(BeZero())
	})

	It("gives up at once if the config server does not accept the certificate, and not because the clock of the host is fast", func() {
		w := newWorld()
		w.register = func(response http.ResponseWriter) { response.WriteHeader(http.StatusNoContent) }
		expires := time.Now().Add(-time.Hour).Truncate(time.Second) // by the clock of the host
		w.join(expires)
		w.expires = expires
		Expect(w.service().Register(context.Background())).To(Succeed())
		w.expires = time.Now()
		began := time.Now()
		Expect(w.service().Register(context.Background())).To(MatchError(ContainSubstring("401")))
		Expect(time.Since(began)).To(BeNumerically("<", registerInterval))
	})

	It("ends with its time while the config server is not reachable", func() {
		w := newWorld()
		w.join(time.Now().Add(time.Hour))
		w.config.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		Expect(w.service().Register(ctx)).NotTo(Succeed())
		Expect(registerTime).To(BeNumerically("<=", time.Minute))
	})
})

var _ = Describe("Times", func() {
	It("between tries grow, up to a limit, and differ between hosts", func() {
		for failures := 1; failures < 100; failures++ {
			wait := retryAfter(failures)
			Expect(wait).To(BeNumerically(">=", firstRetry/2))
			Expect(wait).To(BeNumerically("<=", lastRetry))
			if failures > 10 {
				Expect(wait).To(BeNumerically(">=", lastRetry/2))
			}
		}
		Expect(retryAfter(1)).To(BeNumerically("<=", firstRetry))
	})

	It("of the host are those of the kernel", func() {
		clock := Clock{}
		Expect(clock.BootID()).To(HaveLen(36))
		before := clock.Uptime()
		Expect(before).To(BeNumerically(">", 0))
		debug.FreeOSMemory()
		Expect(clock.Uptime()).To(BeNumerically(">", before))
	})
})
