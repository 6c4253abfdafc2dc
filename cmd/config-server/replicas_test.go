package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/faults"
)

// answers returns a function for Eventually, which sends a request and returns the status code.
func (s *configServer) answers(path, token string) func() (int, error) {
	return func() (int, error) {
		code, _, err := s.send(path, token)
		return code, err
	}
}

// partitioned starts a config server behind a proxy to the API server, and returns when it is ready.
func partitioned() (*configServer, *faults.Proxy) {
	GinkgoHelper()
	config, err := plane.UserConfig("system:serviceaccount:" + ownNamespace + ":config-server")
	Expect(err).NotTo(HaveOccurred())
	pair, err := plane.ServingPair()
	Expect(err).NotTo(HaveOccurred())
	way, err := faults.Start(config, pair)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(way.Stop)
	raw, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"management": {Server: way.Server, CertificateAuthorityData: plane.CA}},
		Contexts:       map[string]*clientcmdapi.Context{"management": {Cluster: "management"}},
		CurrentContext: "management",
	})
	Expect(err).NotTo(HaveOccurred())
	path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(os.WriteFile(path, raw, 0o600)).To(Succeed())
	return serve("--kubeconfig", path), way
}

// expire sets when the join credential in the machine's overlay expires.
func (m *machine) expire(ctx context.Context, at time.Time) {
	GinkgoHelper()
	m.change(ctx, bootstrapv1.OverlayExpiresAnnotation, at.UTC().Format(time.RFC3339))
}

// change sets an annotation of the machine's overlay.
func (m *machine) change(ctx context.Context, annotation, value string) {
	GinkgoHelper()
	overlay := &corev1.Secret{}
	Expect(admin.Get(ctx, client.ObjectKey{Namespace: ownNamespace, Name: "overlay-" + string(m.config.UID)}, overlay)).To(Succeed())
	before := overlay.DeepCopy()
	overlay.Annotations[annotation] = value
	Expect(admin.Patch(ctx, overlay, client.MergeFrom(before))).To(Succeed())
}

var _ = Describe("Replicas of the config server", func() {
	It("answer every host, whichever replica it used before, even one that has just started", func(ctx SpecContext) {
		first, second, m := serve(), serve(), newMachine(ctx, "any-replica")
		waits := first.hold(ctx, m)
		second.waitFor(m)
		waitsToo := make(chan answer, 1)
		go func() {
			code, body, err := second.send(m.path(), m.token)
			waitsToo <- answer{code, body, err}
		}()
		m.prepare(ctx)
		for _, host := range []<-chan answer{waits, waitsToo} {
			Expect((<-host).code).To(Equal(http.StatusOK))
		}
		third := serve()
		for _, s := range []*configServer{first, second, third} {
			Expect(s.answers(m.path(), m.token)()).To(Equal(http.StatusOK))
			Expect(s.answers(m.renderedPath(), m.token)()).To(Equal(http.StatusOK))
		}
	})

	It("are replaced one after the other without a lost request", func(ctx SpecContext) {
		door := freeAddress()
		service, err := faults.Serve(door)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(service.Stop)
		replica := func() *configServer {
			s := serve("--shutdown-delay=1s")
			service.Add(s.url[len("https://"):], s.health+"/readyz")
			return s
		}
		old := []*configServer{replica(), replica()}
		Eventually(service.Ready).Should(Equal(2))
		m, waiting := newMachine(ctx, "rollout"), newMachine(ctx, "rollout-waiting")
		m.prepare(ctx)
		hosts := &configServer{url: "https://" + door}
		Eventually(hosts.answers(m.path(), m.token)).Should(Equal(http.StatusOK))
		for _, s := range old {
			s.waitFor(waiting)
		}
		held := hosts.hold(ctx, waiting)

		over := make(chan struct{})
		var clients sync.WaitGroup
		var mu sync.Mutex
		var wrong []error
		requests := 0
		for range 4 {
			clients.Go(func() {
				for {
					for _, path := range []string{m.path(), m.renderedPath()} {
						code, body, err := hosts.send(path, m.token)
						if err == nil && code != http.StatusOK {
							err = errors.New(string(body))
						}
						mu.Lock()
						requests++
						if err != nil {
							wrong = append(wrong, err)
						}
						mu.Unlock()
					}
					select {
					case <-over:
						return
					default:
					}
				}
			})
		}
		for i, s := range old {
			replica()
			Eventually(service.Ready).Should(Equal(3), "the new one is there before the old one goes")
			s.session.Terminate()
			if i == 0 {
				waiting.prepare(ctx)
			}
			Eventually(s.session).Should(gexec.Exit(0))
			Eventually(service.Ready).Should(Equal(2))
		}
		close(over)
		clients.Wait()
		Expect(wrong).To(BeEmpty())
		Expect(requests).To(BeNumerically(">", 20))
		Expect((<-held).code).To(Equal(http.StatusOK), "it waited while its replica shut down")
	}, SpecTimeout(2*time.Minute))

	It("cut off from the API server serve a host with an overlay until three minutes before its join credential expires, and end no boot", func(ctx SpecContext) {
		s, way := partitioned()
		stands, ends, waits := newMachine(ctx, "cut-off-stands"), newMachine(ctx, "cut-off-ends"), newMachine(ctx, "cut-off-waits")
		stands.prepare(ctx)
		ends.prepare(ctx)
		Eventually(s.answers(ends.path(), ends.token)).Should(Equal(http.StatusOK))
		end := time.Now().Add(3*time.Minute + 4*time.Second).Truncate(time.Second)
		ends.expire(ctx, end)
		Eventually(s.answers(stands.path(), stands.token)).Should(Equal(http.StatusOK))
		Eventually(s.answers(stands.renderedPath(), stands.token)).Should(Equal(http.StatusOK))

		way.Set(faults.Faults{Partition: true})
		Expect(status(s.health + "/readyz")).To(Equal(http.StatusOK))
		Eventually(func() (bool, error) {
			sent := time.Now()
			code, _, err := s.send(ends.path(), ends.token)
			if code == http.StatusOK {
				Expect(sent).To(BeTemporally("<", end.Add(-3*time.Minute)))
			}
			return code == http.StatusServiceUnavailable, err
		}).Should(BeTrue())
		Expect(s.answers(stands.path(), stands.token)()).To(Equal(http.StatusOK))
		Expect(s.answers(stands.renderedPath(), stands.token)()).To(Equal(http.StatusOK))

		By("another replica sends the host to another configuration")
		stands.change(ctx, bootstrapv1.OverlayConfigurationAnnotation, waits.rendered)
		newer := "/rendered/" + stands.config.Namespace + "/" + waits.rendered + "?config=" + stands.config.Name + "&pointer=" + stands.config.Name
		var hosts sync.WaitGroup
		for _, host := range [][2]string{{waits.path(), waits.token}, {newer, stands.token}, {stands.path(), "guessed"}} {
			hosts.Go(func() {
				defer GinkgoRecover()
				Expect(s.answers(host[0], host[1])()).To(Equal(http.StatusServiceUnavailable))
			})
		}
		hosts.Wait()

		By("the connection to the API server is restored")
		way.Set(faults.Faults{})
		Eventually(s.answers(newer, stands.token)).Should(Equal(http.StatusOK))
		Eventually(s.answers(stands.path(), "guessed")).Should(Equal(http.StatusUnauthorized))
		waits.prepare(ctx)
		Eventually(s.answers(waits.path(), waits.token)).Should(Equal(http.StatusOK))
	}, SpecTimeout(2*time.Minute))

	It("that do not know a new token yet serve a host with that token, which runs the real Ignition", func(ctx SpecContext) {
		s, way := partitioned()
		m := newMachine(ctx, "behind")
		m.prepare(ctx)
		Eventually(s.answers(m.path(), m.token)).Should(Equal(http.StatusOK))

		way.Set(faults.Faults{NoWatches: true})
		m.rotate(ctx, "another-token-of-behind")
		newHost(s, m, authority).boots(ctx)
	})
})
