package host_test

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/host"
)

// configServer answers a number of requests with 503, then serves the config. Without the token it answers 401.
type configServer struct {
	*httptest.Server
	notReady atomic.Int32
	asked    atomic.Int32
}

func newConfigServer(config []byte) *configServer {
	server := &configServer{}
	server.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		server.asked.Add(1)
		switch {
		case r.Header.Get("Authorization") != "Bearer the-token":
			w.WriteHeader(http.StatusUnauthorized)
		case server.notReady.Add(-1) >= 0:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			_, _ = w.Write(config)
		}
	}))
	DeferCleanup(server.Close)
	return server
}

// pointer returns user data that merges the server's config and verifies its hash.
func (s *configServer) pointer(config []byte, token string) []byte {
	sum := sha512.Sum512(config)
	return document(map[string]any{"ignition": map[string]any{
		"version": "3.1.0",
		"config": map[string]any{"merge": []any{map[string]any{
			"source":       s.URL + "/config/infra/machine",
			"httpHeaders":  []any{map[string]any{"name": "Authorization", "value": "Bearer " + token}},
			"verification": map[string]any{"hash": "sha512-" + hex.EncodeToString(sum[:])},
		}}},
		"security": map[string]any{"tls": map[string]any{"certificateAuthorities": []any{
			map[string]any{"source": dataURL(certificatePEM(s.Certificate()))},
		}}},
	}})
}

var _ = Describe("A simulated host", func() {
	var h *host.Host

	// machine returns a host that is removed at the end of the spec.
	machine := func(image host.Image) *host.Host {
		h := host.New(host.Options{Name: "host-0", Dir: GinkgoT().TempDir(), Image: image, Log: GinkgoWriter})
		DeferCleanup(h.PowerOff)
		return h
	}

	BeforeEach(func() { h = machine(host.KubeletImage) })

	Context("with a pointer in its user data", func() {
		config := document(map[string]any{
			"ignition": map[string]any{"version": "3.5.0"},
			"storage": map[string]any{"files": []any{
				file("/etc/infratest", 0o640, "infra"),
				file("/etc/marks.env", 0o600, "MARKS=--one=1 --two=\"2 and more\"\n"),
			}},
			"passwd": map[string]any{"users": []any{
				map[string]any{"name": "core", "sshAuthorizedKeys": []any{"ssh-ed25519 AAAA somebody"}}}},
			"systemd": map[string]any{"units": []any{
				unit("mark.service", "[Service]\nType=oneshot\nRemainAfterExit=yes\nEnvironmentFile=/etc/marks.env\n"+
					"Environment=WHERE=/etc/infratest\n"+
					"ExecStart=/bin/sh -c 'cat ${WHERE} >/run/seen; for a in \"$$@\"; do echo \"$$a\"; done >/run/marks' sh $MARKS\n"+
					"[Install]\nWantedBy=multi-user.target\n"),
				unit("sentinel.path", "[Path]\nPathExists=/run/marks\n[Install]\nWantedBy=multi-user.target\n"),
				map[string]any{"name": "sentinel.service", "contents": "[Service]\nType=oneshot\nRemainAfterExit=yes\n" +
					"ExecStartPre=/usr/bin/mkdir -p /run/cluster-api\n" +
					"ExecStart=/usr/bin/touch /run/cluster-api/bootstrap-success.complete\n"},
			}},
		})

		It("retries until the server answers, writes the files and runs the units", func(ctx SpecContext) {
			server := newConfigServer(config)
			server.notReady.Store(2)
			Expect(h.PowerOn(ctx, server.pointer(config, "the-token"))).To(Succeed())

			Eventually(h.Joined).Should(BeTrue())
			Expect(server.asked.Load()).To(BeEquivalentTo(3))
			Expect(h.Err()).NotTo(HaveOccurred())
			Expect(contents(h, "etc/infratest")).To(Equal("infra"))
			Expect(mode(h, "etc/infratest")).To(Equal(os.FileMode(0o640)))
			Expect(mode(h, "etc/marks.env")).To(Equal(os.FileMode(0o600)))
			Expect(contents(h, "home/core/.ssh/authorized_keys.d/ignition")).To(ContainSubstring("somebody"))
			Expect(contents(h, "run/seen")).To(Equal("infra"), "the unit ran inside the host's root")
			Eventually(contents).WithArguments(h, "run/marks").Should(Equal("--one=1\n--two=2 and more\n"))
			Eventually(h.Events).Should(ContainElement(HaveField("Step", host.BootstrapDone)))
			Expect(steps(h)).To(HaveExactElements(host.PoweredOn, host.IgnitionStarted, host.ConfigFetched,
				host.FilesWritten, host.UnitsStarted))
		}, SpecTimeout(3*time.Minute))

		It("reboots from its disk without requesting configuration", func(ctx SpecContext) {
			server := newConfigServer(config)
			Expect(h.PowerOn(ctx, server.pointer(config, "the-token"))).To(Succeed())
			Eventually(h.Joined).Should(BeTrue())
			server.Close()

			Expect(h.Reboot(ctx)).To(Succeed())
			Eventually(h.Joined).Should(BeTrue())
			Expect(server.asked.Load()).To(BeEquivalentTo(1))
		}, SpecTimeout(3*time.Minute))

		It("stops requesting when it is powered off", func(ctx SpecContext) {
			server := newConfigServer(config)
			server.notReady.Store(1 << 30)
			Expect(h.PowerOn(ctx, server.pointer(config, "the-token"))).To(Succeed())
			Eventually(server.asked.Load).Should(BeNumerically(">", 2))

			h.PowerOff()
			Expect(h.Done()).To(BeClosed())
			Expect(h.Err()).NotTo(HaveOccurred())
			server.CloseClientConnections() // the last request can be unread
			asked := server.asked.Load()
			Consistently(server.asked.Load).WithTimeout(time.Second).Should(Equal(asked))
		}, SpecTimeout(3*time.Minute))

		It("does not boot when the server refuses its token", func(ctx SpecContext) {
			server := newConfigServer(config)
			Expect(h.PowerOn(ctx, server.pointer(config, "another-token"))).To(Succeed())
			Eventually(h.Done()).Should(BeClosed())
			Expect(h.Err()).To(MatchError(ContainSubstring("ignition, stage fetch")))
		}, SpecTimeout(3*time.Minute))

		It("does not boot when the config's hash differs from the pointer's", func(ctx SpecContext) {
			server := newConfigServer(append(config, '\n'))
			Expect(h.PowerOn(ctx, server.pointer(config, "the-token"))).To(Succeed())
			Eventually(h.Done()).Should(BeClosed())
			Expect(h.Err()).To(MatchError(ContainSubstring("hash verification failed")))
		}, SpecTimeout(3*time.Minute))
	})

	It("does not boot with an unsupported unit", func(ctx SpecContext) {
		Expect(h.PowerOn(ctx, document(map[string]any{
			"ignition": map[string]any{"version": "3.5.0"},
			"systemd": map[string]any{"units": []any{unit("odd.service",
				"[Service]\nExecStart=/usr/bin/true\nUser=core\n[Install]\nWantedBy=multi-user.target\n")}},
		}))).To(Succeed())
		Eventually(h.Done()).Should(BeClosed())
		Expect(h.Err()).To(MatchError(ContainSubstring("unit odd.service: [Service] User=: not understood")))
	}, SpecTimeout(3*time.Minute))

	It("kills the programs of its units when it is powered off", func(ctx SpecContext) {
		Expect(h.PowerOn(ctx, beating())).To(Succeed())
		Eventually(filepath.Join(h.Root(), "run/beat")).Should(BeAnExistingFile())

		h.PowerOff()
		last := contents(h, "run/beat")
		Consistently(func() string { return contents(h, "run/beat") }).WithTimeout(time.Second).Should(Equal(last))
		Expect(os.RemoveAll(h.Root())).To(Succeed(), "no mount is left below the root")
	}, SpecTimeout(3*time.Minute))

	It("stops when its process is killed", func(ctx SpecContext) {
		self, err := os.Executable()
		Expect(err).NotTo(HaveOccurred())
		dir := GinkgoT().TempDir()
		owner := exec.CommandContext(ctx, self)
		owner.Env = append(os.Environ(), hostDirVariable+"="+dir)
		Expect(owner.Start()).To(Succeed())
		beat := filepath.Join(dir, "root/run/beat")
		Eventually(beat).Should(BeAnExistingFile())

		Expect(owner.Process.Kill()).To(Succeed())
		Expect(owner.Wait()).NotTo(Succeed())
		var last time.Time
		Eventually(func() (time.Duration, error) {
			now, err := os.Stat(beat)
			since := now.ModTime().Sub(last)
			last = now.ModTime()
			return since, err
		}).WithPolling(time.Second).Should(BeZero(), "it beat every 50 milliseconds")
	}, SpecTimeout(3*time.Minute))

	It("can't be powered on twice", func(ctx SpecContext) {
		empty := document(map[string]any{"ignition": map[string]any{"version": "3.5.0"}})
		Expect(h.PowerOn(ctx, empty)).To(Succeed())
		Expect(h.PowerOn(ctx, empty)).To(MatchError(ContainSubstring("it is on already")))
	}, SpecTimeout(3*time.Minute))

	It("reports how to get missing binaries", func(ctx context.Context) {
		bare := host.New(host.Options{Name: "host-1", Dir: GinkgoT().TempDir(), BinDir: GinkgoT().TempDir()})
		Expect(bare.PowerOn(ctx, nil)).To(MatchError(ContainSubstring("run make binaries")))
	})
})

// beating returns user data with a unit that runs a program in the background.
func beating() []byte {
	return document(map[string]any{
		"ignition": map[string]any{"version": "3.5.0"},
		"systemd": map[string]any{"units": []any{unit("beat.service",
			"[Service]\nExecStart=/bin/sh -c '(while sleep 0.05; do date +%%N >/run/beat; done) & wait'\n"+
				"[Install]\nWantedBy=multi-user.target\n")}},
	})
}

// steps returns the steps of all boots in their order.
func steps(h *host.Host) []host.Step {
	var steps []host.Step
	for _, event := range h.Events() {
		switch event.Step {
		case host.UnitStarted, host.UnitFailed, host.KubeletStarted, host.BootstrapDone:
		default:
			steps = append(steps, event.Step)
		}
	}
	return steps
}

func contents(h *host.Host, name string) string {
	raw, err := os.ReadFile(filepath.Join(h.Root(), name))
	Expect(err).NotTo(HaveOccurred())
	return string(raw)
}

func mode(h *host.Host, name string) os.FileMode {
	info, err := os.Stat(filepath.Join(h.Root(), name))
	Expect(err).NotTo(HaveOccurred())
	return info.Mode().Perm()
}
