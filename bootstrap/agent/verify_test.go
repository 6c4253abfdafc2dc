package agent

import (
	"slices"
	"time"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
)

var _ = Describe("An update", func() {
	It("is committed only after the Node was Ready for long enough without a break", func() {
		w := installed(withFiles("/etc/none/f", "a"))
		second := w.offer(w.assign("rendered-b", withFiles("/etc/none/f", "b"), func(a *assignment.Assignment) { a.MinReadySeconds = 60 }))
		var began time.Duration
		broken := 0
		w.isBroken = func() bool {
			if w.read("etc/none/f") != "b" {
				return false
			}
			broken++
			if broken == 3 {
				began = w.uptime
			}
			return broken == 3
		}
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + second))
		Expect(w.uptime - began).To(BeNumerically(">=", time.Minute))
	})

	DescribeTable("is verified whatever the clock does", func(jump time.Duration) {
		w := installed(withFiles("/etc/restart/f", "a"))
		second := w.offer(w.assign("rendered-b", withFiles("/etc/restart/f", "b")))
		jumped := false
		w.isBroken = func() bool {
			if w.read("etc/restart/f") == "b" && !jumped {
				jumped = true
				w.wallclock = w.wallclock.Add(jump)
			}
			return false
		}
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + second))
	},
		Entry("an hour back", -time.Hour), Entry("an hour ahead", time.Hour),
	)

	It("is not verified by a heartbeat from before the change, even if the clock jumps back", func() {
		w := installed(withFiles("/etc/restart/f", "a"))
		second := w.offer(w.assign("rendered-b", withFiles("/etc/restart/f", "b")))
		w.isBroken = func() bool {
			if w.read("etc/restart/f") == "b" {
				w.wallclock = w.wallclock.Add(-time.Hour)
				w.node.Ready = true
				return true // no heartbeat any more
			}
			return false
		}
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + second))
	})

	DescribeTable("is verified by the only heartbeat of a kubelet that restarts in less than a second: it has no fractions of a second", func(before time.Duration) {
		w := installed(withFiles("/etc/restart/f", "a"))
		w.wallclock = w.wallclock.Truncate(time.Second).Add(700 * time.Millisecond)
		w.node.Heartbeat = w.wallclock.Truncate(time.Second).Add(-before)
		w.hasLeaseOnly = true
		second := w.offer(w.assign("rendered-b", withFiles("/etc/restart/f", "b")))
		changed := w.wallclock.Truncate(time.Second)
		w.isBroken = func() bool {
			if w.read("etc/restart/f") == "b" {
				w.node.Heartbeat = changed
			}
			return false
		}
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + second))
	},
		Entry(nil, time.Minute),
		Entry("also if the kubelet before it reported in that second", time.Duration(0)),
	)

	It("is not verified by a heartbeat from before the change in the same second", func() {
		w := installed(withFiles("/etc/restart/f", "a"))
		w.wallclock = w.wallclock.Truncate(time.Second).Add(700 * time.Millisecond)
		w.node.Heartbeat = w.wallclock.Add(-time.Minute)
		w.hasLeaseOnly, w.staysReady = true, true
		second := w.offer(w.assign("rendered-b", withFiles("/etc/restart/f", "b")))
		changed := w.wallclock.Truncate(time.Second)
		w.isBroken = func() bool {
			if w.read("etc/restart/f") == "b" {
				w.node.Heartbeat = changed
				return true // the kubelet has ended
			}
			return false
		}
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + second))
	})

	It("with a reboot is verified on a host whose uptime is that of a machine that booted long ago", func() {
		w := installed(withFiles("/etc/f", "a"))
		w.bootTime = 100 * time.Hour
		second := w.offer(w.assign("rendered-b", withFiles("/etc/f", "b")))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + second))
	})

	It("that restarts the kubelet does not count what the kubelet before reported, while systemd read its units", func() {
		w := installed(withFiles("/etc/none/f", "a"))
		w.slow, w.staysReady = map[string]time.Duration{"daemon-reload": 5 * time.Second}, true
		w.isBroken = func() bool { return slices.Contains(w.calls, "restart kubelet.service") }
		config := withFiles("/etc/none/f", "a")
		config.Ignition.Systemd.Units = []types.Unit{{Name: "kubelet.service", Dropins: []types.Dropin{{Name: "15-a.conf", Contents: ptr.To("[Service]")}}}}
		second := w.offer(w.assign("rendered-b", config))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + second))
		Expect(w.reason()).To(ContainSubstring("the kubelet has not reported to the API server since the host was changed"))
	})

	It("that does not restart the kubelet is verified by the lease: the kubelet reports a Node that does not change rarely", func() {
		w := installed(withFiles("/etc/none/f", "a", "/etc/restart/f", "a"))
		w.hasLeaseOnly = true
		second := w.offer(w.assign("rendered-b", withFiles("/etc/none/f", "b", "/etc/restart/f", "a")))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + second))
		third := w.offer(w.assign("rendered-c", withFiles("/etc/none/f", "b", "/etc/restart/f", "c")))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded "+third), "a restarted kubelet reports at once")
	})
})
