package agent

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// apiServer is the manifest of the API server of a host.
const apiServer = "/etc/kubernetes/manifests/kube-apiserver.yaml"

// probed returns a world with static Pods of which the API server does not pass while the file has the contents "b".
func probed(config update.Config, file string) *world {
	w := installed(config)
	w.pods = func() map[string]string {
		why := ""
		if w.read(file) == "b" {
			why = "connection refused"
		}
		return map[string]string{apiServer: why, "/etc/kubernetes/manifests/failing.yaml": "500 Internal Server Error"}
	}
	return w
}

var _ = Describe("An update of a host with static Pods", func() {
	DescribeTable("is undone if one does not pass its probe any more, although the Node is Ready", func(file string) {
		w := probed(withFiles(file, "a"), file)
		before := w.snapshot()
		second := w.offer(w.assign("rendered-b", withFiles(file, "b")))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + second))
		Expect(w.reason()).To(And(ContainSubstring("the update was not complete within 10m0s: "+apiServer+": connection refused"), Not(ContainSubstring("failing.yaml"))))
		Expect(w.snapshot()).To(Equal(before))
	},
		Entry("after a reboot", "/etc/f"),
		Entry("after a restart of the kubelet", "/etc/restart/f"),
		Entry("after a drain", "/etc/drain/f"),
		Entry("after nothing", "/etc/none/f"),
	)

	It("is undone if the manifest is gone and the update does not remove it", func() {
		w := probed(withFiles("/etc/f", "a"), "none")
		w.rebooted = func() {
			w.pods = func() map[string]string {
				if w.read("etc/f") == "b" {
					return nil // the kubelet has another staticPodPath
				}
				return map[string]string{apiServer: ""}
			}
		}
		second := w.offer(w.assign("rendered-b", withFiles("/etc/f", "b")))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + second))
		Expect(w.reason()).To(ContainSubstring(apiServer + ": it does not exist"))
	})

	It("is done if it removes the manifest", func() {
		const manifest = "/etc/none/manifests/app.yaml"
		w := installed(withFiles(manifest, "app"))
		w.pods = func() map[string]string {
			if w.read(manifest) != "" {
				return map[string]string{manifest: ""}
			}
			return nil
		}
		second := w.offer(w.assign("rendered-b", withFiles()))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + second))
	})

	It("waits for those that start slowly, and is done only after they passed for long enough without a break", func() {
		w := installed(withFiles("/etc/none/f", "a"))
		var began time.Time
		looks := 0
		w.pods = func() map[string]string {
			why := ""
			if w.read("etc/none/f") == "b" {
				if looks++; looks < 4 || looks == 5 {
					began, why = w.wallclock, "connection refused"
				}
			}
			return map[string]string{apiServer: why}
		}
		second := w.offer(w.assign("rendered-b", withFiles("/etc/none/f", "b")))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + second))
		Expect(looks).To(BeNumerically(">", 6))
		Expect(w.wallclock.Sub(began)).To(BeNumerically(">=", 10*time.Second))
	})

	It("is undone if the agent is killed or the host loses power at any step: what passed before is not forgotten", func() {
		for _, losesPower := range []bool{false, true} {
			for stopAt := 1; ; stopAt++ {
				w := probed(withFiles("/etc/drain/f", "a"), "/etc/drain/f")
				before := w.snapshot()
				w.steps, w.stopAt, w.losesPower = nil, stopAt, losesPower
				second := w.offer(w.assign("rendered-b", withFiles("/etc/drain/f", "b")))
				Expect(w.run()).To(Succeed())
				Expect(w.state()).To(Equal("Degraded "+second), "step %d", stopAt)
				Expect(w.snapshot()).To(Equal(before), "step %d", stopAt)
				if len(w.steps) < stopAt {
					break
				}
			}
		}
	})
})

var _ = DescribeTable("A host of a control plane that is in another pool by mistake is not updated to a configuration with", func(path string) {
	w := installed(withFiles("/etc/none/f", "a", "/etc/kubernetes/pki/ca.crt", "of a worker"))
	second := w.offer(w.assign("rendered-b", withFiles("/etc/none/f", "b", path, "b")))
	Expect(w.run()).To(Succeed())
	Expect(w.state()).To(Equal("Done "+second), "others can have this")

	w = installed(withFiles("/etc/none/f", "a"))
	w.write(apiServer, "")
	before := w.snapshot()
	second = w.offer(w.assign("rendered-b", withFiles("/etc/none/f", "b", path, "b")))
	Expect(w.run()).To(Succeed())
	Expect(w.state()).To(Equal("Unreconcilable " + second))
	Expect(w.reason()).To(ContainSubstring("it runs a control plane, and kubeadm and etcd have " + path + ": remove it"))
	Expect(w.snapshot()).To(Equal(before))
},
	Entry("a certificate", "/etc/kubernetes/pki/apiserver.crt"),
	Entry("a manifest", "/etc/kubernetes/manifests/etcd.yaml"),
	Entry("data of etcd", "/var/lib/etcd/member/snap/db"),
	Entry("a kubeconfig", "/etc/kubernetes/admin.conf"),
)

var _ = DescribeTable("A host of a control plane is not updated to a configuration with", func(path string) {
	w := installed(withFiles("/etc/none/f", "a"))
	w.offer(w.assign("rendered-a", withFiles("/etc/none/f", "a", "/data/etcd/old", "a")))
	Expect(w.run()).To(Succeed())
	w.write(apiServer, "")
	w.volumes = []string{"/data/etcd", "/etc/ssl/certs"}
	before := w.snapshot()
	second := w.offer(w.assign("rendered-b", withFiles("/etc/none/f", "b", path, "b")))
	Expect(w.run()).To(Succeed())
	Expect(w.state()).To(Equal("Unreconcilable " + second))
	Expect(w.reason()).To(ContainSubstring("of which a static Pod mounts /data/etcd: remove " + path + " from the configuration"))
	Expect(w.snapshot()).To(Equal(before))

	third := w.offer(w.assign("rendered-c", withFiles("/etc/none/f", "b", "/etc/ssl/certs/none", "b")))
	Expect(w.run()).To(Succeed())
	Expect(w.state()).To(Equal("Done "+third), "what is not in the configuration any more is removed")
},
	Entry("data of etcd that is elsewhere", "/data/etcd/member"),
	Entry("a unit that mounts something there", "/etc/systemd/system/data-etcd.mount"),
)

var _ = Describe("A host of a control plane", func() {
	It("begins no update before the manager says that it can be away, also without a drain", func() {
		w := installed(withFiles("/etc/none/f", "a"))
		w.write(apiServer, "")
		w.drains = false
		before := w.snapshot()
		second := w.offer(w.assign("rendered-b", withFiles("/etc/none/f", "b")))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Draining " + second))
		Expect(w.node.Annotations).To(HaveKeyWithValue(agentv1.EffectAnnotation, second+" None "+agentv1.WithoutDrain))
		Expect(w.snapshot()).To(Equal(before))
		w.node.Annotations[agentv1.DrainedAnnotation] = second
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + second))
		Expect(w.node.Annotations).To(HaveKeyWithValue(agentv1.EffectAnnotation, second+" None"))
		Expect(w.read("etc/none/f")).To(Equal("b"))
	})

	It("begins no update that is taken back while it waits", func() {
		w := installed(withFiles("/etc/none/f", "a"))
		w.write(apiServer, "")
		w.drains = false
		first := w.node.Annotations[agentv1.DesiredAnnotation]
		w.offer(w.assign("rendered-b", withFiles("/etc/none/f", "b")))
		Expect(w.run()).To(Succeed())
		w.node.Annotations[agentv1.DesiredAnnotation] = first
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + first))
		Expect(w.read("etc/none/f")).To(Equal("a"))
	})
})

var _ = Describe("An update that breaks the only API server that the host knows", func() {
	// undone returns how long the update was on the host.
	undone := func(w *world, file string) time.Duration {
		GinkgoHelper()
		var began, ended time.Time
		isBroken := w.isBroken
		w.isBroken = func() bool {
			switch isNew := w.read(file) == "b"; {
			case isNew && began.IsZero():
				began = w.wallclock
			case !isNew && !began.IsZero() && ended.IsZero():
				ended = w.wallclock
			}
			return isBroken()
		}
		_ = w.run() // it never ends while it can't report
		if ended.IsZero() && w.read(file) != "b" {
			ended = w.wallclock
		}
		Expect(ended).NotTo(BeZero(), w.state()+" "+w.reason())
		return ended.Sub(began)
	}

	DescribeTable("is undone without it in the time of one whose Node is not Ready, and reported when it answers", func(file string, isSeen bool) {
		w := probed(withFiles(file, "a"), file)
		w.offer(w.assign("rendered-b", withFiles(file, "b")))
		w.isBroken = func() bool { return w.read(file) == "b" }
		usual := undone(w, file)
		Expect(w.state()).To(HavePrefix("Degraded "))

		w = probed(withFiles(file, "a"), file)
		first := w.node.Annotations[agentv1.DesiredAnnotation]
		before, isDead := w.snapshot(), false
		second := w.offer(w.assign("rendered-b", withFiles(file, "b")))
		w.isSilent = func() bool { isDead = isDead || w.read(file) == "b"; return isDead }
		w.isBroken = func() bool { // it stays dead after the undo
			w.node.Known = isSeen || !w.isSilent()
			return w.isSilent()
		}
		Expect(undone(w, file)).To(BeNumerically("<=", usual+time.Minute))
		Expect(w.snapshot()).To(Equal(before))
		Expect(w.agent.journal.Phase).To(Equal(idle), "the undo has ended")
		Expect(w.node.Annotations).NotTo(HaveKeyWithValue(agentv1.StateAnnotation, "Degraded"))

		w.isSilent, w.isBroken, w.node.Known = func() bool { return false }, func() bool { return false }, true
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + second))
		Expect(w.reason()).To(ContainSubstring(apiServer + ": connection refused"))
		Expect(w.node.Annotations).To(HaveKeyWithValue(agentv1.CurrentAnnotation, first))
	},
		Entry("after a reboot", "/etc/f", false),
		Entry("after a reboot, while its watch seems to go on", "/etc/f", true),
		Entry("after a restart of the kubelet", "/etc/restart/f", false),
		Entry("after a restart of the kubelet, while its watch seems to go on", "/etc/restart/f", true),
		Entry("after a drain", "/etc/drain/f", false),
		Entry("after a drain, while its watch seems to go on", "/etc/drain/f", true),
		Entry("after nothing", "/etc/none/f", false),
		Entry("after nothing, while its watch seems to go on", "/etc/none/f", true),
	)
})
