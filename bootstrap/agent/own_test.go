package agent

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

var _ = Describe("An update after which the check of the host finds something", func() {
	const found = ignition.KubeletEnvPath + " differs from what Poolboot wrote"
	withMachine := func(a *assignment.Assignment) {
		own := ignition.New()
		own.Storage.Files = append(own.Storage.Files, newFile(ignition.KubeletEnvPath, "labels"))
		raw, err := ignition.Marshal(own)
		Expect(err).NotTo(HaveOccurred())
		a.Machine = json.RawMessage(raw)
	}
	// begin returns a host on which each boot with the file etc/damages changes Poolboot's file.
	begin := func() *world {
		w := newWorld()
		w.install(w.assign("rendered-a", withFiles("/etc/f", "a"), withMachine))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(HavePrefix("Done "))
		w.rebooted = func() {
			if w.read("etc/damages") != "" {
				w.write(ignition.KubeletEnvPath, "none")
			}
		}
		w.found = func() []string {
			if w.read(ignition.KubeletEnvPath) != "labels" {
				return []string{found}
			}
			return nil
		}
		return w
	}
	damaging := func(w *world) string {
		return w.offer(w.assign("rendered-b", withFiles("/etc/f", "b", "/etc/damages", "yes"), withMachine))
	}

	It("is undone with its effect, and names what it changed", func() {
		w := begin()
		revision := damaging(w)
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + revision))
		Expect(w.reason()).To(ContainSubstring(found))
		Expect(w.read("etc/f")).To(Equal("a"))
		Expect(w.read(ignition.KubeletEnvPath)).To(Equal("labels"))
		Expect(w.calls[len(w.calls)-1]).To(Equal("restart kubelet.service"))
	})

	It("is undone with its effect if the agent is killed at any step", func() {
		for stopAt := 1; ; stopAt++ {
			w := begin()
			w.steps, w.stopAt = nil, stopAt
			revision := damaging(w)
			Expect(w.run()).To(Succeed())
			if len(w.steps) < stopAt {
				return
			}
			Expect(w.state()).To(Equal("Degraded "+revision), "step %d", stopAt)
			Expect(w.read("etc/f")+w.read(ignition.KubeletEnvPath)).To(Equal("alabels"), "step %d", stopAt)
		}
	})

	It("is undone if the check does not run any more", func() {
		w := begin()
		revision := damaging(w)
		w.rebooted = func() { w.fails["check"] = errors.New("no check.sh") }
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + revision))
		Expect(w.reason()).To(ContainSubstring("no check.sh"))
	})

	It("is done if the check found the same before: an administrator changed it", func() {
		w := begin()
		Expect(os.WriteFile(filepath.Join(w.directory, ignition.KubeletEnvPath), []byte("mine"), 0o600)).To(Succeed())
		revision := damaging(w)
		w.rebooted = nil
		Expect(w.run()).To(Succeed())
		Expect(w.read("etc/f")).To(Equal("b"))
		Expect(w.state()).To(HaveSuffix(" " + revision))
		Expect(w.read(ignition.KubeletEnvPath)).To(Equal("mine"))
	})
})
