package agent

import (
	"errors"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

var _ = Describe("Whatever happens to an undo,", func() {
	failing := errors.New("exit status 1")

	It("flags of the kubelet that can't be restored are left over, also among other files", func() {
		w := installed(withFiles("/etc/reload/f", "a"))
		second := w.offer(w.assign("rendered-b", withFiles("/etc/reload/f", "b", ignition.KubeadmJoinPath, "x")))
		w.isBroken = func() bool { return w.read("etc/reload/f") == "b" }
		w.rebooted = func() { w.fails["flags "+ignition.KubeadmJoinPath] = failing }
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + second))
		Expect(w.flags).To(BeTrue())
		Expect(w.node.Annotations[agentv1.DriftAnnotation]).To(ContainSubstring(ignition.KubeadmJoinPath + ": NotRestored"))
		w.rebooted, w.fails = nil, map[string]error{}
		Expect(w.run()).To(Succeed())
		Expect(w.flags).To(BeFalse())
	})

	It("kernel arguments that two undos left over are both restored later", func() {
		w := installed(withFiles("/etc/f", "a"))
		w.isBroken = func() bool { return strings.HasPrefix(w.read("etc/f"), "b") }
		w.rebooted = func() { w.fails["arguments "] = failing }
		for _, argument := range []string{"one", "two"} {
			config := withFiles("/etc/f", "b"+argument)
			config.KernelArguments = []string{argument}
			w.offer(w.assign("rendered-"+argument, config))
			Expect(w.run()).To(Succeed())
			Expect(w.node.Annotations[agentv1.StateAnnotation]).To(Equal("Degraded"))
		}
		Expect(w.arguments).To(ConsistOf("one", "two"))
		w.rebooted, w.fails = nil, map[string]error{}
		Expect(w.run()).To(Succeed())
		Expect(w.arguments).To(BeEmpty())
	})
})
