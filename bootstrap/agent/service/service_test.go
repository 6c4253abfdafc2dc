package service

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
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
		stop := start(w.service())
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

	It("gives up at once without a valid certificate", func() {
		w := newWorld()
		Expect(w.service().Register(context.Background())).To(MatchError(ContainSubstring("has not joined")))
		w.join(time.Now().Add(-time.Hour))
		Expect(w.service().Register(context.Background())).To(MatchError(ContainSubstring("expired")))
		Expect(w.registered).To(BeZero())
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

var _ = Describe("Changes of files", func() {
	begin := func(paths ...string) (*watcher, string) {
		directory := GinkgoT().TempDir()
		root, err := os.OpenRoot(directory)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(root.Close)
		Expect(os.MkdirAll(filepath.Join(directory, "etc"), 0o755)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(directory, "etc/f"), []byte("a"), 0o644)).To(Succeed())
		w, err := newWatcher(root)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(w.close)
		w.watch(paths)
		return w, directory
	}

	DescribeTable("are found", func(change func(directory string) error) {
		w, directory := begin("/etc/f", "/etc/missing/parent/g", "/etc/systemd/system/a.service.d/")
		Expect(change(directory)).To(Succeed())
		Eventually(w.changed(), "5s").Should(Receive())
	},
		Entry("written", func(d string) error { return os.WriteFile(d+"/etc/f", []byte("b"), 0o644) }),
		Entry("removed", func(d string) error { return os.Remove(d + "/etc/f") }),
		Entry("replaced", func(d string) error {
			_ = os.WriteFile(d+"/etc/tmp", nil, 0o644)
			return os.Rename(d+"/etc/tmp", d+"/etc/f")
		}),
		Entry("another mode", func(d string) error { return os.Chmod(d+"/etc/f", 0o600) }),
		Entry("the directory of a file that is missing", func(d string) error { return os.MkdirAll(d+"/etc/missing/parent", 0o755) }),
		Entry("its directory renamed", func(d string) error { return os.Rename(d+"/etc", d+"/other") }),
	)

	It("are found in directories that are created later, for any name", func() {
		w, directory := begin("/etc/systemd/system/a.service.d/")
		Expect(os.MkdirAll(directory+"/etc/systemd/system/a.service.d", 0o755)).To(Succeed())
		Eventually(w.changed(), "5s").Should(Receive())
		Expect(os.WriteFile(directory+"/etc/systemd/system/a.service.d/any.conf", nil, 0o644)).To(Succeed())
		Eventually(w.changed(), "5s").Should(Receive())
	})

	It("of other files beside them wake nobody", func() {
		w, directory := begin("/etc/f")
		Expect(os.WriteFile(directory+"/etc/other", []byte("b"), 0o644)).To(Succeed())
		Consistently(w.changed(), "1500ms").ShouldNot(Receive())
	})

	It("of paths that left the configuration wake nobody", func() {
		w, directory := begin("/etc/f")
		w.watch([]string{"/usr/f"})
		Expect(os.WriteFile(directory+"/etc/f", []byte("b"), 0o644)).To(Succeed())
		Consistently(w.changed(), "1500ms").ShouldNot(Receive())
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
