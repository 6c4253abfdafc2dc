package agent

import (
	"errors"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
)

var _ = Describe("A host whose certificate the config server does not accept", func() {
	refusal := fmt.Errorf("%w: another CA issued it", ErrNotAccepted)

	It("says so when it should be updated, and is updated once it is accepted", func() {
		w := newWorld()
		w.install(w.assign("rendered-a", withFiles("/etc/none/f", "a")))
		Expect(w.run()).To(Succeed())
		w.offer(w.assign("rendered-b", withFiles("/etc/none/f", "b")))
		w.fails["download"] = refusal
		Expect(w.run()).NotTo(Succeed())
		Expect(w.reason()).To(And(HavePrefix(agentv1.CertificateNotAccepted), ContainSubstring("another CA issued it")))
		delete(w.fails, "download")
		Expect(w.run()).To(Succeed())
		Expect(w.read("etc/none/f")).To(Equal("b"))
		Expect(w.reason()).To(BeEmpty())
	})

	It("says so within an hour also if nothing changes, but not that the server is not reachable", func() {
		w := newWorld()
		w.install(w.assign("rendered-a", withFiles("/etc/none/f", "a")))
		Expect(w.run()).To(Succeed())
		a, stop := w.begin()
		defer stop()
		step := func() time.Duration {
			wait, err := a.Step(GinkgoT().Context(), w.node)
			Expect(err).NotTo(HaveOccurred())
			Expect(w.state()).To(HavePrefix("Done "))
			return wait
		}
		w.fails["download"] = errors.New("no route to host")
		Expect(step()).To(BeNumerically("<=", time.Hour))
		w.pass(time.Hour)
		Expect(step()).To(BeNumerically(">", time.Minute))
		Expect(w.reason()).To(BeEmpty())
		w.fails["download"] = refusal
		w.pass(time.Hour)
		wait := step()
		Expect(w.reason()).To(And(HavePrefix(agentv1.CertificateNotAccepted), ContainSubstring("another CA issued it")))
		w.fails["download"] = errors.New("no route to host")
		w.pass(wait)
		wait = step()
		Expect(w.reason()).To(HavePrefix(agentv1.CertificateNotAccepted), "nothing else is known")
		delete(w.fails, "download")
		w.pass(wait)
		step()
		Expect(w.reason()).To(BeEmpty())
	})
})
